/** Why git could not do what it was asked, as far as a user can do something about it. */
export type GitProblem =
  | 'git_missing'
  | 'not_found'
  | 'refused'
  | 'redirected'
  | 'untrusted_certificate'
  | 'unreachable'
  | 'timed_out'
  | 'unreadable'
  | 'disk_full'
  | 'other';

/** The first text that is found decides: the later ones appear beside the earlier ones. */
const signs: readonly (readonly [RegExp, GitProblem])[] = [
  [/No space left on device|Disk quota exceeded/i, 'disk_full'],
  [/terminal prompts disabled|could not read (?:Username|Password)|Authentication failed/i, 'refused'],
  [/returned error: 40[13]/i, 'refused'],
  [/returned error: 3\d\d|unable to update url base from redirection/i, 'redirected'],
  [/repository '.*' not found|returned error: 4(?:04|10)/i, 'not_found'],
  [/certificate|SSL|TLS/, 'untrusted_certificate'],
  [/Operation timed out|Operation too slow|timed out after/i, 'timed_out'],
  [/Could not resolve host|Failed to connect|Couldn't connect|Connection refused|unable to access/i, 'unreachable'],
  [/early EOF|hung up|RPC failed|unexpected disconnect/i, 'unreachable'],
  [/Permission denied/i, 'unreadable'],
  [/does not appear to be a git repository|not a git repository|does not exist/i, 'not_found'],
];

/** What git's standard error says went wrong. */
export const problemOf = (errors: string): GitProblem => signs.find(([sign]) => sign.test(errors))?.[1] ?? 'other';

/** One sentence for a user: what is wrong with the repository and the mend. No address, no path, no credential. */
export function sentenceOf(problem: GitProblem, fullName: string, isLocal: boolean): string {
  switch (problem) {
    case 'git_missing':
      return "git is not installed on the server's machine: install git 2.32 or newer.";
    case 'not_found':
      return isLocal
        ? `The repository ${fullName} was not found: check that its path is a git repository on the server's machine.`
        : `The repository ${fullName} was not found: check its URL and, if it is private, connect it with a token that may read it.`;
    case 'refused':
      return `The host refused access to ${fullName}: connect it again with a token that may read it.`;
    case 'redirected':
      return `The address of ${fullName} leads to another one: connect the repository under its present address.`;
    case 'untrusted_certificate':
      return `The certificate of the host of ${fullName} is not trusted: name its authority in SLIPWAY_EGRESS_EXTRA_CA.`;
    case 'unreachable':
      return `The host of ${fullName} could not be reached: check the address and the network, then try again.`;
    case 'timed_out':
      return `Reading ${fullName} took too long and was stopped: check the network and the host, then try again.`;
    case 'unreadable':
      return `The files of ${fullName} may not be read: give the user that runs the server access to them.`;
    case 'disk_full':
      return `The server's disk is full, so ${fullName} could not be fetched: make room in the data directory.`;
    case 'other':
      return `git could not read ${fullName}: check that a clone of it works on the server's machine.`;
  }
}
