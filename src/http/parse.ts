import type { core } from 'zod';
import { type Issue, invalid } from '../kernel/fault.ts';
import type { AnyOperation } from './operation.ts';
import { textIssues } from './text.ts';

/** What a request brought, before it is checked. A path parameter that cannot be decoded is null. */
export interface RawCall {
  readonly params: Readonly<Record<string, string | null>>;
  /** The query as it was sent, without the question mark. */
  readonly search: string;
  readonly body: unknown;
}

/** The parts of a call as the operation's schemas read them; undefined where it has no schema. */
export interface ParsedCall {
  readonly params: unknown;
  readonly query: unknown;
  readonly body: unknown;
}

/** More would not help the caller, and an answer must have an end. */
const maxIssues = 100;

/**
 * Checks every part of a call before it fails, so that `issues` lists each invalid field of path, query and body at
 * once. Throws `Fault('invalid', 'invalid_request')`. Messages say what was wanted, never what was sent.
 */
export function parseCall(op: AnyOperation, raw: RawCall): ParsedCall {
  const issues: Issue[] = [];
  const params = op.params && readParams(op.params, raw.params, issues);
  const query = op.query && readQuery(op.query, raw.search, issues);
  const bodySchema = 'body' in op ? op.body : undefined;
  const body = bodySchema && readBody(bodySchema, raw.body, issues);
  if (issues.length > 0) throw invalid(issues.slice(0, maxIssues));
  return { params, query, body };
}

type Schema = NonNullable<AnyOperation['params']>;

/** Most parameters are ids, which are made of such characters: there is nothing to look for in them. */
const plainWord = /^[\w.~-]+$/;

function readParams(schema: Schema, params: RawCall['params'], issues: Issue[]): unknown {
  if (Object.values(params).every((value) => value !== null && plainWord.test(value))) {
    const result = schema.safeParse(params);
    if (result.success) return result.data;
  }
  return read(schema, params, undecodable(params), issues);
}

/** Reads one part. Where `known` or the text itself tells what is wrong at a place, the schema's word adds nothing. */
function read(schema: Schema, value: unknown, known: readonly Issue[], issues: Issue[]): unknown {
  const found = [...known, ...textIssues(value, maxIssues)];
  issues.push(...found);
  const result = schema.safeParse(value);
  if (result.success) return result.data;
  for (const issue of result.error.issues.slice(0, maxIssues) as core.$ZodIssue[]) {
    const isTold = found.some(({ path }) => sameParts(path, issue.path));
    if (!isTold) issues.push(...issuesOf(issue));
  }
  return undefined;
}

function readBody(schema: Schema, body: unknown, issues: Issue[]): unknown {
  const isObject = typeof body === 'object' && body !== null && !Array.isArray(body);
  if (isObject || (body === undefined && schema.safeParse(undefined).success)) return read(schema, body, [], issues);
  issues.push({ message: 'The body must be a JSON object', path: [] });
  return undefined;
}

function undecodable(params: RawCall['params']): Issue[] {
  const names = Object.keys(params).filter((name) => params[name] === null);
  return names.map((name) => ({ message: 'Must be percent-encoded UTF-8', path: [name] }));
}

/** A parameter that is sent twice is refused: which of them is meant, nobody can know. */
function readQuery(schema: Schema, search: string, issues: Issue[]): unknown {
  if (search === '') return read(schema, {}, [], issues);
  const query = new Map<string, string>();
  const doubled = new Set<string>();
  for (const [name, value] of new URLSearchParams(search)) {
    if (query.has(name)) doubled.add(name);
    query.set(name, value);
  }
  const known = [...doubled].map((name) => ({ message: 'Must be given once', path: [name] }));
  // `fromEntries` defines, where an assignment to `__proto__` would not.
  return read(schema, Object.fromEntries(query), known, issues);
}

function issuesOf(issue: core.$ZodIssue): Issue[] {
  const path = issue.path.map(String);
  if (issue.code === 'unrecognized_keys') {
    return issue.keys.map((key) => ({ message: 'Unknown field', path: [...path, key] }));
  }
  return [{ message: issue.message, path }];
}

function sameParts(one: readonly string[], other: readonly PropertyKey[]): boolean {
  return one.length === other.length && one.every((part, position) => part === String(other[position]));
}
