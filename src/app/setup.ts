import { createHash, randomBytes, timingSafeEqual } from 'node:crypto';
import type { Founding } from '../access/founding.ts';
import type { Founded } from '../access/service.ts';
import type { Page } from '../http/server.ts';
import { Fault } from '../kernel/fault.ts';
import { type Answers, answerFields, donePage, formPage, noticePage, type SetupPage } from './setup-html.ts';

export interface SetupNeeds {
  /** Creates everything, or throws the 400 fault (paths are `Founding` fields) or 409 `already_set_up`. */
  initialise(founding: Founding): Promise<Founded>;
  /**
   * Under which address people reach the server, without a trailing slash. Null where no setting says so: then it is
   * the address that a request was sent to, and `link` is a path.
   */
  readonly publicUrl: string | null;
  isSetUp(): Promise<boolean>;
}

/**
 * The one-time way to set up a server from a browser. `link` carries a random token that lives in this process only
 * and works once: whoever can read the server's output may set it up, nobody else.
 */
export function setupPages({ initialise, publicUrl, isSetUp }: SetupNeeds): { pages: Page[]; link: string } {
  const token = randomBytes(32).toString('base64url');
  let used = false;

  const holdsToken = (request: Request): boolean =>
    !used && sameText(new URL(request.url).searchParams.get('token') ?? '', token);

  const addressOf = (request: Request): string => publicUrl || new URL(request.url).origin;

  async function show(request: Request): Promise<Response> {
    if (!holdsToken(request)) return wrongToken();
    if (await isSetUp()) return alreadySetUp();
    return respond(200, formPage({ answers: {}, problems: {} }));
  }

  async function submit(request: Request): Promise<Response> {
    if (!holdsToken(request)) return wrongToken();
    const address = addressOf(request);
    if (request.headers.get('origin') !== new URL(address).origin) return wrongOrigin(address);
    const answers = await readAnswers(request);
    if (!answers) return notAForm();
    if (await isSetUp()) return alreadySetUp();
    // Another form may have been sent while this one was read. From here to the assignment nothing is awaited.
    if (used) return wrongToken();
    used = true;
    try {
      const founded = await initialise(foundingOf(answers));
      return respond(200, donePage({ founded, address, passwordWasChosen: answers.ownerPassword !== '' }));
    } catch (error) {
      if (error instanceof Fault && error.code === 'already_set_up') return alreadySetUp();
      // Nothing was created, so the link must go on working.
      used = false;
      if (!(error instanceof Fault) || !error.issues) throw error;
      const problems = Object.fromEntries(error.issues.map(({ path, message }) => [path[0] ?? '', message]));
      return respond(400, formPage({ answers, problems }));
    }
  }

  return {
    pages: [
      { method: 'GET', path: '/setup', handle: show },
      { method: 'POST', path: '/setup', handle: submit },
    ],
    link: `${publicUrl ?? ''}/setup?token=${token}`,
  };
}

/** Compares in a time that says nothing about where the texts differ: hashes are of one length. */
function sameText(one: string, other: string): boolean {
  const digest = (text: string) => createHash('sha256').update(text).digest();
  return timingSafeEqual(digest(one), digest(other));
}

/** The form's fields, or undefined where the body is no form. */
async function readAnswers(request: Request): Promise<Answers | undefined> {
  const type = request.headers.get('content-type')?.split(';', 1)[0]?.trim().toLowerCase();
  if (type !== 'application/x-www-form-urlencoded') return undefined;
  const form = new URLSearchParams(await request.text());
  return Object.fromEntries(answerFields.map((field) => [field, form.get(field) ?? '']));
}

/** An empty field means the usual value; only the e-mail address has none. */
function foundingOf(answers: Answers): Founding {
  const given = (field: keyof Answers) => (answers[field]?.trim() ? answers[field] : undefined);
  return {
    ownerEmail: answers.ownerEmail ?? '',
    ownerPassword: answers.ownerPassword === '' ? undefined : answers.ownerPassword,
    organisation: given('organisation'),
    workspace: given('workspace'),
    project: given('project'),
  };
}

const wrongToken = () =>
  respond(
    403,
    noticePage(
      'This link does not work',
      'It is not the link that the server printed, or it was used already. A server that is not set up prints a new link each time it starts.',
    ),
  );

const wrongOrigin = (address: string) =>
  respond(
    403,
    noticePage(
      'The form came from another address',
      `Open the link exactly as the server printed it, under ${address}. If the server is reached under another address, start it with --public-url.`,
    ),
  );

const notAForm = () => respond(415, noticePage('This is not the form', 'Send the form of the set-up page.'));

const alreadySetUp = () =>
  respond(
    410,
    noticePage('Slipway is already set up', 'There is nothing more to do here: use the keys that were shown.'),
  );

function respond(status: number, page: SetupPage): Response {
  return new Response(page.html, {
    status,
    headers: {
      'content-type': 'text/html; charset=utf-8',
      'content-security-policy': `default-src 'none'; style-src '${page.styleHash}'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'`,
      'cache-control': 'no-store',
      // Not `no-referrer`: under it browsers send `Origin: null` with the form.
      'referrer-policy': 'same-origin',
      'x-content-type-options': 'nosniff',
      'x-frame-options': 'DENY',
      'cross-origin-opener-policy': 'same-origin',
    },
  });
}
