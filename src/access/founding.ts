import { type Issue, invalid } from '../kernel/fault.ts';
import { randomBase62 } from '../kernel/id.ts';

/** What the first run is told, by the command line or the set-up page. */
export interface Founding {
  readonly ownerEmail: string;
  readonly ownerPassword?: string | undefined;
  readonly organisation?: string | undefined;
  readonly workspace?: string | undefined;
  readonly project?: string | undefined;
}

/** The same, checked and completed. */
export interface CheckedFounding {
  readonly ownerEmail: string;
  readonly ownerName: string;
  readonly ownerPassword: string;
  readonly organisation: string;
  readonly workspace: string;
  readonly project: string;
}

const usualNames = { organisation: 'My organisation', workspace: 'Main', project: 'Default' } as const;
const leastPassword = 8;
const mostPassword = 1024;
const generatedPassword = 24;
const mostName = 120;

/**
 * Checks the answers and fills in what was left out: usual names, and a random password of 24 characters (142 bits).
 * E-mail addresses are kept in lower case. Throws the 400 fault with every bad answer; the path is its field's name.
 */
export function checkFounding(founding: Founding): CheckedFounding {
  const issues: Issue[] = [];
  const check = (field: string, problem: string | undefined) => {
    if (problem !== undefined) issues.push({ message: problem, path: [field] });
  };
  const ownerEmail = founding.ownerEmail.trim().toLowerCase();
  check('ownerEmail', emailProblem(ownerEmail));
  if (founding.ownerPassword !== undefined) check('ownerPassword', passwordProblem(founding.ownerPassword));
  const names = { ...usualNames } as Record<keyof typeof usualNames, string>;
  for (const field of ['organisation', 'workspace', 'project'] as const) {
    const given = founding[field]?.trim();
    if (given === undefined) continue;
    check(field, nameProblem(given));
    names[field] = given;
  }
  if (issues.length > 0) throw invalid(issues);
  return {
    ...names,
    ownerEmail,
    ownerName: ownerEmail.slice(0, ownerEmail.indexOf('@')),
    ownerPassword: founding.ownerPassword ?? randomBase62(generatedPassword),
  };
}

function emailProblem(email: string): string | undefined {
  if (email === '') return 'Must not be empty';
  // One @, no white space, and a domain: whether the address takes mail is not ours to tell.
  const wellFormed = /^[^\s@<>"(),:;\\[\]\p{Cc}]{1,64}@[^\s@<>"(),:;\\[\]\p{Cc}.]+(?:\.[^\s@<>"(),:;\\[\]\p{Cc}.]+)*$/u;
  if (email.length > 254 || !email.isWellFormed() || !wellFormed.test(email)) {
    return 'Must be an e-mail address, for example ada@example.com';
  }
  return undefined;
}

function passwordProblem(password: string): string | undefined {
  if (password.length < leastPassword) return `Must have at least ${leastPassword} characters`;
  if (password.length > mostPassword) return `Must have at most ${mostPassword} characters`;
  if (/\p{Cc}/u.test(password) || !password.isWellFormed()) return 'Must not hold control characters';
  return undefined;
}

function nameProblem(name: string): string | undefined {
  if (name === '') return 'Must not be empty';
  if (name.length > mostName) return `Must have at most ${mostName} characters`;
  if (/\p{Cc}/u.test(name) || !name.isWellFormed()) return 'Must not hold control characters';
  return undefined;
}

const longestSlug = 48;

/** A name as it is written in addresses: a-z, 0-9 and single hyphens; `otherwise` where nothing of the name is left. */
export function slugOf(name: string, otherwise: string): string {
  const slug = name
    .normalize('NFKD')
    .replace(/\p{M}/gu, '')
    .toLowerCase()
    .replace(/[^a-z0-9]+/g, '-')
    .slice(0, longestSlug)
    .replace(/^-+|-+$/g, '');
  return slug === '' ? otherwise : slug;
}
