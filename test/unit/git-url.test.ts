import { describe, expect, test } from 'bun:test';
import { plainHttpHosts, readRepositoryUrl } from '../../src/integrations/url.ts';

const read = (url: string) => readRepositoryUrl(url, plainHttpHosts(['127.0.0.0/8', 'localhost:3000', '10.0.0.0/8']));

describe('a repository URL', () => {
  test.each([
    ['https://github.com/octo/demo', 'https://github.com/octo/demo', 'octo/demo'],
    ['https://github.com/octo/demo.git', 'https://github.com/octo/demo.git', 'octo/demo'],
    [' HTTPS://GitHub.com:443/octo/demo/ ', 'https://github.com/octo/demo', 'octo/demo'],
    [
      'https://gitlab.example.com:8443/group/sub/demo.git',
      'https://gitlab.example.com:8443/group/sub/demo.git',
      'demo',
    ],
    ['https://git.example.com/demo', 'https://git.example.com/demo', 'demo'],
    ['https://git.example.com/octo/d%20m', 'https://git.example.com/octo/d%20m', 'octo/d m'],
    ['file:///srv/git/demo.git', 'file:///srv/git/demo.git', 'demo'],
    ['file:///home/ada/demo/.git', 'file:///home/ada/demo/.git', 'demo'],
    ['file:///octo/demo/', 'file:///octo/demo', 'demo'],
    ['http://127.0.0.1:3000/octo/demo', 'http://127.0.0.1:3000/octo/demo', 'octo/demo'],
    ['http://localhost:4000/octo/demo', 'http://localhost:4000/octo/demo', 'octo/demo'],
  ])('%s is stored in one form and named', (text, cloneUrl, fullName) => {
    expect(read(text)).toMatchObject({ cloneUrl, fullName });
  });

  test.each([
    ['https://ada:pw@github.com/octo/demo', '--token-stdin'],
    ['https://ada@github.com/octo/demo', '--token-stdin'],
    ['http://github.com/octo/demo', 'https://'],
    ['http://10.1.2.3/octo/demo', 'https://'],
    ['http://[::1]/octo/demo', 'https://'],
    ['http://127.0.0.1.example.com/octo/demo', 'https://'],
    ['git@github.com:octo/demo.git', 'https://'],
    ['ssh://git@github.com/octo/demo', 'https://'],
    ['ext::sh -c touch% /tmp/x', 'https://'],
    ['--upload-pack=touch /tmp/x', 'https://'],
    ['/srv/git/demo', 'https://'],
    ['file:demo', 'https://'],
    ['file://host/srv/demo', 'absolute path'],
    ['https://github.com', 'path is missing'],
    ['https://github.com/.git', 'path is missing'],
    ['file:///', 'path is missing'],
    ['https://github.com/octo/demo?x=1', '?'],
    ['https://github.com/octo/demo#main', '#'],
    ['https://github.com/octo/de%0amo', 'control characters'],
    ['https://github.com/octo/de%zz', '%'],
  ])('%s is refused with the mend', (text, mend) => {
    expect(() => read(text)).toThrow(mend);
  });

  test('that is refused is not repeated in the message', () => {
    expect(() => read('https://ada:hunter2@github.com/octo/demo')).toThrow(/^(?!.*hunter2)/);
  });

  test('of plain http needs a setting even on loopback', () => {
    expect(() => readRepositoryUrl('http://127.0.0.1/octo/demo', plainHttpHosts([]))).toThrow('https://');
  });
});
