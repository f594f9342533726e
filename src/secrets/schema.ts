import { z } from 'zod';
import { surfaces, usualSurfaces } from '../egress/egress.ts';

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

/** Names the later of two equal items. */
function refuseDoubles(items: readonly string[], context: z.core.$RefinementCtx): void {
  for (const [place, item] of items.entries()) {
    if (items.indexOf(item) < place) context.addIssue({ code: 'custom', path: [place], message: 'Is listed twice' });
  }
}

/** A list of hosts without doubles, each an exact name or address, or `*.` and a name. */
export const hostList = (least: 0 | 1, most: number) =>
  z
    .array(AllowedHost)
    .min(least, 'Must name at least one host')
    .max(most, { error: `Must name at most ${most} hosts`, abort: true })
    .superRefine(refuseDoubles);

const AllowedHosts = hostList(1, 20);

const Surfaces = z
  .array(z.enum(surfaces))
  .min(1, 'Must name at least one surface')
  .superRefine(refuseDoubles)
  .meta({
    description:
      'Where in a request the placeholder is replaced: header values (Basic credentials included), the query string, ' +
      'the path, the body, text frames of a WebSocket. Anywhere else it is sent as it is.',
  });

export const NewSecret = z.object({
  name: SecretName,
  value: SecretValue,
  allowedHosts: AllowedHosts,
  surfaces: Surfaces.default([...usualSurfaces]),
});
export type NewSecret = z.output<typeof NewSecret>;

/** Each field sent replaces the present one. The name and the placeholder stay, so that open runs go on. */
export const SecretPatch = z.object({
  value: SecretValue.optional(),
  allowedHosts: AllowedHosts.optional(),
  surfaces: Surfaces.optional(),
});
export type SecretPatch = z.output<typeof SecretPatch>;

/** A workspace secret as it may be shown: the value is never among its fields. */
export const Secret = z.object({
  id: z.guid(),
  name: z.string().meta({ description: 'The environment variable that holds a placeholder in sandboxes' }),
  allowedHosts: z.array(z.string()),
  surfaces: z.array(z.enum(surfaces)).meta({ description: 'Where in a request the placeholder is replaced' }),
  createdAt: z.iso.datetime(),
});
export type Secret = z.infer<typeof Secret>;
