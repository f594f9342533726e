import { z } from 'zod';

const hostPattern = /^(?:\*\.)?[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?(?:\.[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?)*$/;

const reservedNames = new Set([
  ...['PATH', 'HOME', 'USER', 'LOGNAME', 'SHELL', 'PWD', 'OLDPWD', 'TERM', 'LANG', 'TZ', 'TMPDIR', 'HOSTNAME'],
  ...['IFS', 'ENV', 'BASH_ENV', 'EDITOR', 'NODE_OPTIONS', 'NODE_EXTRA_CA_CERTS', 'PYTHONPATH', 'PYTHONHOME'],
  ...['PERL5LIB', 'RUBYOPT', 'JAVA_TOOL_OPTIONS', 'CURL_CA_BUNDLE', 'REQUESTS_CA_BUNDLE', 'PIP_CERT'],
  ...['AWS_CA_BUNDLE', 'DENO_CERT', 'NO_PROXY'],
]);
const reservedStarts = ['LC_', 'LD_', 'DYLD_', 'GIT_', 'XDG_', 'SSL_CERT_', 'NPM_CONFIG_', 'CODEX_', 'CLAUDE_'].concat([
  'OPENCODE_',
  'SLIPWAY_',
]);
const reservedEnds = ['_PROXY', '_BASE_URL'];

/** True for a variable that would change how the sandbox works. Source: decisions, "Reserved secret names". */
export const isReservedName = (name: string): boolean =>
  reservedNames.has(name) ||
  reservedStarts.some((start) => name.startsWith(start)) ||
  reservedEnds.some((end) => name.endsWith(end));

const SecretName = z
  .string()
  .trim()
  .min(1, { error: 'Must not be empty', abort: true })
  .max(80, { error: 'Must be at most 80 characters', abort: true })
  .regex(/^[A-Z_][A-Z0-9_]*$/, {
    error: 'Must be an environment variable name: A-Z, 0-9 and _, not starting with a digit',
    abort: true,
  })
  .refine((name) => !isReservedName(name), 'Is reserved: a variable of this name would change how the sandbox works');

const longestValue = 65_536;
const tooLong = { error: `Must be at most ${longestValue} characters`, abort: true };

/** Kept exactly as sent. No message says anything about what was sent. */
const SecretValue = z
  .string()
  .min(1, { error: 'Must not be empty', abort: true })
  .max(longestValue, tooLong)
  // zod's own limit counts code points; the interface counts UTF-16 units.
  .refine((value) => value.length <= longestValue, tooLong)
  .refine((value) => !value.includes('\0') && value.isWellFormed(), 'Must not hold NUL or lone surrogates');

const AllowedHost = z
  .string()
  .trim()
  .min(1, { error: 'Must not be empty', abort: true })
  .max(253, { error: 'Must be at most 253 characters', abort: true })
  .regex(
    hostPattern,
    'Must be a host name in lower case without scheme, path or port; a leading *. matches subdomains',
  );

const AllowedHosts = z
  .array(AllowedHost)
  .min(1, 'Must name at least one host')
  .max(20, { error: 'Must name at most 20 hosts', abort: true })
  .superRefine((hosts, context) => {
    for (const [place, host] of hosts.entries()) {
      if (hosts.indexOf(host) < place) context.addIssue({ code: 'custom', path: [place], message: 'Is listed twice' });
    }
  });

export const NewSecret = z.object({ name: SecretName, value: SecretValue, allowedHosts: AllowedHosts });
export type NewSecret = z.output<typeof NewSecret>;

/** A workspace secret as it may be shown: the value is never among its fields. */
export const Secret = z.object({
  id: z.guid(),
  name: z.string().meta({ description: 'The environment variable that holds a placeholder in sandboxes' }),
  allowedHosts: z.array(z.string()),
  createdAt: z.iso.datetime(),
});
export type Secret = z.infer<typeof Secret>;
