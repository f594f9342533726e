import { describe, expect, test } from 'bun:test';
import { createHash } from 'node:crypto';
import { checkFounding, type Founding } from '../../src/access/founding.ts';
import type { Founded } from '../../src/access/service.ts';
import { setupPages } from '../../src/app/setup.ts';
import { conflict } from '../../src/kernel/fault.ts';

const ownUrl = 'http://127.0.0.1:4800';
const keys = {
  workspaceKey: 'slk_WORKSPACE',
  managementKey: 'sl_management_MANAGEMENT',
  ingestKey: 'sl_public_INGEST',
};
const ids = { organisationId: 'o', workspaceId: 'w', projectId: 'p' };

interface Options {
  publicUrl?: string | null;
  isSetUp?: () => boolean;
  before?: () => Promise<void>;
}

/** The pages over an `initialise` that checks as the real one does and remembers what it created. */
function setup({ publicUrl = ownUrl, isSetUp = () => false, before = async () => {} }: Options = {}) {
  const created: Founding[] = [];
  const { pages, link } = setupPages({
    publicUrl,
    isSetUp: async () => isSetUp(),
    async initialise(founding): Promise<Founded> {
      const { ownerEmail, ownerPassword } = checkFounding(founding);
      await before();
      created.push(founding);
      return { ...ids, ...keys, ownerEmail, ownerPassword };
    },
  });
  const send = async (method: 'GET' | 'POST', url: string, init: RequestInit = {}) => {
    const page = pages.find((each) => each.method === method && each.path === new URL(url).pathname);
    const response = await page?.handle(new Request(url, { method, ...init }));
    if (!response) throw new Error('no such page');
    return { status: response.status, headers: response.headers, html: await response.text() };
  };
  return {
    created,
    link,
    get: (url = link) => send('GET', url),
    post(
      fields: Record<string, string>,
      { url = link, headers = {} }: { url?: string; headers?: Record<string, string> } = {},
    ) {
      const usual = { origin: ownUrl, 'content-type': 'application/x-www-form-urlencoded' };
      return send('POST', url, { headers: { ...usual, ...headers }, body: new URLSearchParams(fields).toString() });
    },
  };
}

const answers = { ownerEmail: 'ada@example.com', ownerPassword: '', organisation: '', workspace: 'Core', project: '' };

test('the link leads to a form with a label for every field', async () => {
  const { link, get } = setup();
  expect(link).toMatch(/^http:\/\/127\.0\.0\.1:4800\/setup\?token=[A-Za-z0-9_-]{43}$/);
  const { status, html } = await get();
  expect(status).toBe(200);
  for (const field of Object.keys(answers)) {
    expect(html).toContain(`<label for="${field}">`);
    expect(html).toContain(`name="${field}"`);
  }
});

test('every set-up has a token of its own', () => expect(setup().link).not.toBe(setup().link));

test('a page loads nothing from anywhere, runs no script and is kept nowhere', async () => {
  const { html, headers } = await setup().get();
  const policy = headers.get('content-security-policy') ?? '';
  const style = /<style>([\s\S]*)<\/style>/.exec(html)?.[1] ?? '';
  expect(policy).toContain("default-src 'none'");
  expect(policy).toContain(`style-src 'sha256-${createHash('sha256').update(style).digest('base64')}'`);
  expect(policy).not.toContain('unsafe');
  expect(policy).toContain("frame-ancestors 'none'");
  expect(html).not.toMatch(/<script|<link|<img|url\(|@import|\sstyle=|\son\w+=/i);
  expect(headers.get('cache-control')).toBe('no-store');
  // Under no-referrer browsers would send the form with `Origin: null`.
  expect(headers.get('referrer-policy')).toBe('same-origin');
});

describe('the form', () => {
  test('creates everything once and shows the keys with an example', async () => {
    const pages = setup();
    const { status, html } = await pages.post(answers);
    expect(status).toBe(200);
    expect(pages.created).toEqual([
      {
        ownerEmail: 'ada@example.com',
        ownerPassword: undefined,
        organisation: undefined,
        workspace: 'Core',
        project: undefined,
      },
    ]);
    for (const key of Object.values(keys)) expect(html).toContain(key);
    expect(html).toContain(
      'curl -H &#39;Authorization: Bearer slk_WORKSPACE&#39; http://127.0.0.1:4800/api/v1/workspace',
    );
    expect(html).toMatch(/<dt>Password<\/dt><dd><code>[0-9A-Za-z]{24}<\/code>/);
  });

  test('does not repeat a password that was chosen', async () => {
    const { html } = await setup().post({ ...answers, ownerPassword: 'correct horse' });
    expect(html).not.toContain('correct horse');
  });

  test('works once: afterwards the link opens nothing', async () => {
    const pages = setup();
    await pages.post(answers);
    expect((await pages.get()).status).toBe(403);
    expect((await pages.post(answers)).status).toBe(403);
    expect(pages.created).toHaveLength(1);
  });

  test('sent twice at the same time creates once', async () => {
    const gate = Promise.withResolvers<void>();
    const pages = setup({ before: () => gate.promise });
    const both = [pages.post(answers), pages.post(answers)];
    gate.resolve();
    expect((await Promise.all(both)).map(({ status }) => status).sort()).toEqual([200, 403]);
    expect(pages.created).toHaveLength(1);
  });

  test('with bad answers comes back with each named at its field and what was entered, but for the password', async () => {
    const pages = setup();
    const { status, html } = await pages.post({
      ...answers,
      ownerEmail: 'nobody',
      ownerPassword: 'short',
      workspace: 'w'.repeat(121),
    });
    expect(status).toBe(400);
    for (const field of ['ownerEmail', 'ownerPassword', 'workspace']) {
      expect(html).toMatch(
        new RegExp(`<input id="${field}"[^>]*aria-invalid="true"[^>]*>\\s*<div[^>]*><p class="problem">`),
      );
    }
    expect(html).toContain('Your e-mail address: Must be an e-mail address');
    expect(html).not.toMatch(/<input id="project"[^>]*aria-invalid/);
    expect(html).toContain('value="nobody"');
    expect(html).not.toContain('short');
    expect((await pages.post(answers)).status).toBe(200);
  });

  test('escapes everything that was entered', async () => {
    const hostile = `"><script>alert(1)</script>&'`;
    const { html } = await setup().post({ ...answers, ownerEmail: hostile, organisation: hostile });
    expect(html).not.toContain('<script');
    expect(html).toContain('value="&quot;&gt;&lt;script&gt;alert(1)&lt;/script&gt;&amp;&#39;"');
  });

  test.each([
    ['another origin', { origin: 'http://evil.example' }],
    ['another port', { origin: 'http://127.0.0.1:4801' }],
    ['an opaque origin', { origin: 'null' }],
    ['no origin', { origin: '' }],
  ])('from %s is refused and creates nothing', async (_, headers) => {
    const pages = setup();
    expect((await pages.post(answers, { headers })).status).toBe(403);
    expect(pages.created).toEqual([]);
    expect((await pages.get()).status).toBe(200);
  });

  test('in another encoding is refused', async () => {
    expect((await setup().post(answers, { headers: { 'content-type': 'text/plain' } })).status).toBe(415);
  });

  test('goes on working when creating failed for a reason of ours', async () => {
    let failures = 1;
    const pages = setup({
      before: async () => {
        if (failures-- > 0) throw new Error('disk full');
      },
    });
    await expect(pages.post(answers)).rejects.toThrow('disk full');
    expect((await pages.post(answers)).status).toBe(200);
  });
});

describe('a wrong token', () => {
  test.each(['', '?token=', '?token=wrong', `?token=${'A'.repeat(43)}`])(
    '%p shows no form and creates nothing',
    async (query) => {
      const pages = setup();
      const url = `${ownUrl}/setup${query}`;
      const shown = await pages.get(url);
      expect(shown.status).toBe(403);
      expect(shown.html).not.toContain('<form');
      expect((await pages.post(answers, { url })).status).toBe(403);
      expect(pages.created).toEqual([]);
    },
  );
});

describe('where Slipway was set up by other means', () => {
  test('the link answers 410', async () => {
    const pages = setup({ isSetUp: () => true });
    expect((await pages.get()).status).toBe(410);
    expect((await pages.post(answers)).status).toBe(410);
  });

  test('while the form was being filled in, sending it answers 410', async () => {
    const pages = setup({
      before: async () => {
        throw conflict('already_set_up', 'Slipway is already set up');
      },
    });
    expect((await pages.post(answers)).status).toBe(410);
  });
});

describe('where no public address is set', () => {
  test('the link is a path, and the address that the request was sent to counts', async () => {
    const pages = setup({ publicUrl: null });
    expect(pages.link).toMatch(/^\/setup\?token=/);
    const url = `http://box.lan:4800${pages.link}`;
    expect((await pages.post(answers, { url, headers: { origin: 'http://evil.example' } })).status).toBe(403);
    const done = await pages.post(answers, { url, headers: { origin: 'http://box.lan:4800' } });
    expect(done.status).toBe(200);
    expect(done.html).toContain('http://box.lan:4800/api/v1/workspace');
  });
});
