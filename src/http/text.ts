import type { Issue } from '../kernel/fault.ts';

/** Deeper than anything that an operation takes, and flat enough for every reader of the value. */
const maxDepth = 64;

/**
 * What no schema has to think of: text that cannot be stored or passed on as it is (NUL, half a surrogate pair), in
 * values and in field names, and nesting without end. Goes through the value without recursion, and stops at `most`.
 */
export function textIssues(value: unknown, most: number): Issue[] {
  const issues: Issue[] = [];
  const left: { value: unknown; path: readonly string[] }[] = [{ value, path: [] }];
  for (let next = left.pop(); next && issues.length < most; next = left.pop()) {
    const { value: current, path } = next;
    if (typeof current === 'string') {
      const complaint = complaintAbout(current);
      if (complaint) issues.push({ message: `Must not hold ${complaint}`, path });
      continue;
    }
    if (typeof current !== 'object' || current === null) continue;
    if (path.length >= maxDepth) {
      issues.push({ message: `Must not be nested deeper than ${maxDepth} levels`, path });
      continue;
    }
    // Pushed backwards, so that they come off the stack in the order in which they were sent.
    for (const [key, inner] of Object.entries(current).toReversed()) {
      const complaint = complaintAbout(key);
      if (complaint)
        issues.push({ message: `The field's name must not hold ${complaint}`, path: [...path, shown(key)] });
      else left.push({ value: inner, path: [...path, key] });
    }
  }
  return issues;
}

function complaintAbout(text: string): string | undefined {
  if (text.includes('\0')) return 'the NUL character';
  return text.isWellFormed() ? undefined : 'half of a surrogate pair';
}

/** A field's name in a form that can be sent back. */
function shown(key: string): string {
  return key.slice(0, 100).toWellFormed().replaceAll('\0', '\uFFFD');
}
