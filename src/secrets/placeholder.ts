import { randomBase62 } from '../kernel/id.ts';

/**
 * What programs know tokens by. Some check the form before they send a token, so a placeholder keeps its value's
 * prefix. Only characters that never need escaping in a URL (RFC 3986 unreserved).
 */
const knownPrefixes = [
  ...['github_pat_', 'ghp_', 'gho_', 'ghu_', 'ghs_', 'ghr_'],
  ...['glpat-', 'gldt-', 'glrt-', 'glptt-', 'gloas-'],
  ...['sk-ant-api03-', 'sk-ant-admin01-', 'sk-ant-oat01-', 'sk-ant-', 'sk-proj-', 'sk-svcacct-', 'sk-admin-'],
  ...['sk-or-v1-', 'sk-', 'gsk_', 'xai-', 'AIza', 'ya29.', 'r8_', 'hf_', 'pplx-', 'tvly-'],
  ...['xoxb-', 'xoxp-', 'xoxa-', 'xoxe-', 'xoxs-', 'xapp-'],
  ...['npm_', 'pypi-', 'rubygems_', 'dckr_pat_', 'dckr_oat_'],
  ...['sk_live_', 'sk_test_', 'rk_live_', 'rk_test_', 'pk_live_', 'pk_test_', 'whsec_'],
  ...['sntrys_', 'sntryu_', 'lin_api_', 'ntn_', 'secret_', 'figd_', 'shpat_', 'dop_v1_', 'SG.', 'phc_', 'phx_'],
  ...['slk_', 'sl_management_', 'sl_public_', 'service_pat_'],
].sort((one, other) => other.length - one.length);

const unknownPrefix = 'ph_';
const longestKept = 512;
const leastRandom = 16;
const usualRandom = 22;

/**
 * A stand-in for a secret value: well-known prefix, the installation's `marker`, random base62. It has as many bytes
 * as the value in UTF-8, so that no length changes when it is replaced, unless the value is longer than 512 bytes or
 * too short to leave 16 random characters. It holds RFC 3986 unreserved characters only.
 * Source: reference on egress, section 5.
 */
export function makePlaceholder(value: string, marker: string): string {
  const start = (knownPrefixes.find((prefix) => value.startsWith(prefix)) ?? unknownPrefix) + marker;
  const bytes = Buffer.byteLength(value, 'utf8');
  const room = bytes - start.length;
  return start + randomBase62(bytes <= longestKept && room >= leastRandom ? room : usualRandom);
}
