import { createHash } from 'node:crypto';
import type { Founding } from '../access/founding.ts';
import type { Founded } from '../access/service.ts';

/** A whole page and the hash by which the content security policy lets its one style sheet through. */
export interface SetupPage {
  readonly html: string;
  readonly styleHash: string;
}

export const answerFields = ['ownerEmail', 'ownerPassword', 'organisation', 'workspace', 'project'] as const;
export type Answers = { readonly [F in keyof Founding]?: string };

interface Field {
  readonly name: (typeof answerFields)[number];
  readonly label: string;
  readonly hint: string;
  /** Attributes of the input beside name, value and what assistive technology needs. */
  readonly attributes: string;
}

const fields: readonly Field[] = [
  {
    name: 'ownerEmail',
    label: 'Your e-mail address',
    hint: 'You become the owner of the workspace.',
    attributes: 'type="email" autocomplete="email" required autofocus maxlength="254"',
  },
  {
    name: 'ownerPassword',
    label: 'Password',
    hint: 'At least 8 characters. Leave it empty and one is made for you.',
    attributes: 'type="password" autocomplete="new-password" minlength="8" maxlength="1024"',
  },
  {
    name: 'organisation',
    label: 'Organisation',
    hint: 'Owns the workspaces.',
    attributes: 'type="text" autocomplete="organization" maxlength="120" placeholder="My organisation"',
  },
  {
    name: 'workspace',
    label: 'Workspace',
    hint: 'Holds automations, secrets and members.',
    attributes: 'type="text" autocomplete="off" maxlength="120" placeholder="Main"',
  },
  {
    name: 'project',
    label: 'Project',
    hint: 'Receives telemetry.',
    attributes: 'type="text" autocomplete="off" maxlength="120" placeholder="Default"',
  },
];

const style = `
:root { color-scheme: light dark; font: 16px/1.5 system-ui, sans-serif; }
body { max-width: 38rem; margin: 3rem auto; padding: 0 1.25rem; }
h1 { font-size: 1.6rem; line-height: 1.2; }
label { display: block; margin-top: 1.25rem; font-weight: 600; }
input { box-sizing: border-box; width: 100%; padding: .55rem .7rem; border: 1px solid #8888; border-radius: .4rem; font: inherit; }
input[aria-invalid] { border-color: #d33; }
.hint { margin: .2rem 0 0; opacity: .7; font-size: .9rem; }
.problem { margin: .2rem 0 0; color: #d33; font-size: .9rem; font-weight: 600; }
button { margin-top: 1.75rem; padding: .6rem 1.4rem; border: 0; border-radius: .4rem; background: #2457d6; color: #fff; font: inherit; font-weight: 600; cursor: pointer; }
dt { margin-top: 1rem; font-weight: 600; }
dd { margin: .2rem 0 0; }
code, pre { font: .9rem/1.5 ui-monospace, monospace; background: #8882; border-radius: .4rem; user-select: all; }
code { padding: .15rem .4rem; overflow-wrap: anywhere; }
pre { padding: .8rem 1rem; white-space: pre-wrap; overflow-wrap: anywhere; }
`;
const styleHash = `sha256-${createHash('sha256').update(style).digest('base64')}`;

/** The form, with what was entered before and what is wrong with it. A password is never sent back. */
export function formPage(state: {
  readonly answers: Answers;
  readonly problems: Readonly<Record<string, string>>;
}): SetupPage {
  // Without an action the form goes to the page's own address, which carries the token.
  return page(
    'Set up Slipway',
    `<p>This creates your organisation, its first workspace and project, and the first keys.</p>
<form method="post" accept-charset="utf-8">
${fields.map((field) => fieldHtml(field, state.answers[field.name] ?? '', state.problems[field.name])).join('\n')}
<button type="submit">Set up</button>
</form>`,
  );
}

/** Everything that was created. The only place where the keys are ever shown. */
export function donePage({
  founded,
  address,
  passwordWasChosen,
}: {
  readonly founded: Founded;
  /** Origin and path under which the server is reached. */
  readonly address: string;
  readonly passwordWasChosen: boolean;
}): SetupPage {
  const entries: readonly [label: string, value: string, use: string][] = [
    ['Workspace key', founded.workspaceKey, 'The bearer token of the management API: automations, runs, secrets.'],
    ['Management key', founded.managementKey, 'Makes and lists the ingest keys of all projects.'],
    ['Ingest key', founded.ingestKey, 'Sends telemetry of the project.'],
    ...(passwordWasChosen
      ? []
      : ([['Password', founded.ownerPassword, `Made for ${founded.ownerEmail}.`]] as [string, string, string][])),
  ];
  const example = `curl -H 'Authorization: Bearer ${founded.workspaceKey}' ${address}/api/v1/workspace`;
  return page(
    'Slipway is set up',
    `<p><strong>Keep these now.</strong> They are shown this once: only their hashes are stored, and this page
cannot be opened again. A click selects a whole value.</p>
<dl>
${entries.map(([label, value, use]) => `<dt>${escapeHtml(label)}</dt><dd><code>${escapeHtml(value)}</code><p class="hint">${escapeHtml(use)}</p></dd>`).join('\n')}
</dl>
<p>Try the workspace key:</p>
<pre>${escapeHtml(example)}</pre>`,
  );
}

/** A page that only says something. */
export const noticePage = (title: string, text: string): SetupPage => page(title, `<p>${escapeHtml(text)}</p>`);

function fieldHtml(field: Field, value: string, problem: string | undefined): string {
  const { name, label, hint, attributes } = field;
  const kept = name === 'ownerPassword' ? '' : ` value="${escapeHtml(value)}"`;
  const marked = problem === undefined ? '' : ' aria-invalid="true"';
  const told = problem === undefined ? '' : `<p class="problem">${escapeHtml(label)}: ${escapeHtml(problem)}.</p>`;
  return `<label for="${name}">${escapeHtml(label)}</label>
<input id="${name}" name="${name}"${kept} ${attributes}${marked} aria-describedby="${name}-note">
<div id="${name}-note">${told}<p class="hint">${escapeHtml(hint)}</p></div>`;
}

function page(title: string, body: string): SetupPage {
  const html = `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>${escapeHtml(title)}</title>
<style>${style}</style>
</head>
<body>
<h1>${escapeHtml(title)}</h1>
${body}
</body>
</html>
`;
  return { html, styleHash };
}

const entities: Readonly<Record<string, string>> = {
  '&': '&amp;',
  '<': '&lt;',
  '>': '&gt;',
  '"': '&quot;',
  "'": '&#39;',
};

const escapeHtml = (text: string): string => text.replace(/[&<>"']/g, (character) => entities[character] ?? character);
