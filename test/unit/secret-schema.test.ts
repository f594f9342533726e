import { describe, expect, test } from 'bun:test';
import { NewSecret } from '../../src/secrets/schema.ts';

const valid = { name: 'API_TOKEN', value: 'v', allowedHosts: ['api.example.com'] };

/** The places that are refused, or what was read. */
function read(change: object) {
  const result = NewSecret.safeParse({ ...valid, ...change });
  return result.success ? result.data : result.error.issues.map((issue) => issue.path.join('.'));
}

describe('a secret name', () => {
  test.each([
    'A',
    '_',
    'GH_TOKEN',
    '_2',
    'A'.repeat(80),
    'PATHS',
    'MYHOME',
    'GITHUB_TOKEN',
    'LC',
    'PROXY',
    'BASE_URL',
    'HTTP_PROXY_X',
  ])('%s is taken', (name) => expect(read({ name })).toMatchObject({ name }));

  test.each(['', '   ', 'a', '1A', 'A-B', 'A B', 'É', 'A'.repeat(81), 'A\nB', 5, null, undefined])(
    '%p is refused once',
    (name) => expect(read({ name })).toEqual(['name']),
  );

  test('is trimmed first, then checked', () => {
    expect(read({ name: '  API_TOKEN\n' })).toMatchObject({ name: 'API_TOKEN' });
    expect(read({ name: ` ${'A'.repeat(80)} ` })).toMatchObject({ name: 'A'.repeat(80) });
    expect(read({ name: ' PATH ' })).toEqual(['name']);
  });

  // The list of decisions.md, "Reserved secret names".
  const listed =
    'PATH, HOME, USER, LOGNAME, SHELL, PWD, OLDPWD, TERM, LANG, TZ, TMPDIR, HOSTNAME, IFS, ENV, BASH_ENV, EDITOR, NODE_OPTIONS, NODE_EXTRA_CA_CERTS, PYTHONPATH, PYTHONHOME, PERL5LIB, RUBYOPT, JAVA_TOOL_OPTIONS, CURL_CA_BUNDLE, REQUESTS_CA_BUNDLE, PIP_CERT, AWS_CA_BUNDLE, DENO_CERT, NO_PROXY'.split(
      ', ',
    );
  const starts = [
    'LC_',
    'LD_',
    'DYLD_',
    'GIT_',
    'XDG_',
    'SSL_CERT_',
    'NPM_CONFIG_',
    'CODEX_',
    'CLAUDE_',
    'OPENCODE_',
    'SLIPWAY_',
  ];
  const reserved = [
    ...listed,
    ...starts.flatMap((start) => [start, `${start}X`]),
    'HTTPS_PROXY',
    '_PROXY',
    'OPENAI_BASE_URL',
  ];
  test.each(reserved)('%s is reserved', (name) => expect(read({ name })).toEqual(['name']));
});

describe('a secret value', () => {
  test.each([' ', ' v \n', 'a'.repeat(65_536), '🔑'.repeat(32_768)])('is kept as sent (%#)', (value) =>
    expect(read({ value })).toMatchObject({ value }),
  );

  test.each(['', 'a'.repeat(65_537), `${'🔑'.repeat(32_768)}a`, 'a\0b', 'a\ud800', '\udc00a', 1, undefined])(
    'is refused once and never repeated in the answer (%#)',
    (value) => {
      expect(read({ value })).toEqual(['value']);
      const { error } = NewSecret.safeParse({ ...valid, value: 'SENTINEL\0SENTINEL' });
      expect(JSON.stringify(error?.issues)).not.toContain('SENTINEL');
    },
  );
});

describe('allowed hosts', () => {
  const label = 'a'.repeat(63);
  const longest = `${label}.${label}.${label}.${'a'.repeat(61)}`;
  test.each(['localhost', 'a', 'api.example.com', '*.example.com', '10.0.0.1', 'x--y.z', '1.2', longest])(
    '%s is taken',
    (host) => expect(read({ allowedHosts: [host] })).toMatchObject({ allowedHosts: [host] }),
  );

  test.each([
    '',
    ' ',
    'API.example.com',
    'https://a.b',
    'a.b/c',
    'a.b:443',
    '*',
    '*.',
    'a.*.b',
    '*a.b',
    'a..b',
    '.a',
    'a.',
    '-a',
    'a-',
    'a_b',
    '[::1]',
    `${'a'.repeat(64)}.b`,
    `${longest}a`,
    'é.fr',
    'a.b\0',
    7,
    null,
  ])('%p is refused at its place', (host) =>
    expect(read({ allowedHosts: ['ok.example', host] })).toEqual(['allowedHosts.1']),
  );

  test('are trimmed, then compared: the later of two equal ones is named', () => {
    expect(read({ allowedHosts: [' a.b '] })).toMatchObject({ allowedHosts: ['a.b'] });
    expect(read({ allowedHosts: ['a.b', 'c.d', ' a.b', 'c.d'] })).toEqual(['allowedHosts.2', 'allowedHosts.3']);
  });

  test('are 1 to 20', () => {
    const hosts = (count: number) => Array.from({ length: count }, (_, place) => `h${place}.example`);
    expect(read({ allowedHosts: [] })).toEqual(['allowedHosts']);
    expect(read({ allowedHosts: hosts(20) })).toMatchObject({ allowedHosts: hosts(20) });
    expect(read({ allowedHosts: hosts(21) })).toEqual(['allowedHosts']);
    expect(read({ allowedHosts: 'a.b' })).toEqual(['allowedHosts']);
  });
});

test('every bad field is named at once, a duplicate host beside a bad one included', () => {
  expect(read({ name: 'x', value: '', allowedHosts: ['a.b', 'B', 'a.b'] })).toEqual([
    'name',
    'value',
    'allowedHosts.1',
    'allowedHosts.2',
  ]);
  expect(NewSecret.safeParse({}).error?.issues.map((issue) => issue.path.join('.'))).toEqual([
    'name',
    'value',
    'allowedHosts',
  ]);
});
