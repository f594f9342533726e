import type { CheckedOut } from '../runs/row.ts';

/** What the agent is told about where it works. */
export interface Surroundings {
  readonly automationName: string;
  readonly repositories: readonly Pick<CheckedOut, 'fullName' | 'path' | 'branch'>[];
  readonly secrets: readonly { name: string; allowedHosts: readonly string[] }[];
}

/** The rules that hold in every turn. */
export function systemPrompt({ automationName, repositories, secrets }: Surroundings): string {
  return [
    `You are a coding agent that works for the automation "${automationName}". Nobody can answer questions while you work: decide yourself, and say in your final answer what you did, what you found and what is left.`,
    `You work in a sandbox of your own. These repositories are checked out with their full history, the first one is your working directory:\n${repositories
      .map((repository) => `- ${repository.fullName} in ${repository.path} (branch ${repository.branch})`)
      .join('\n')}`,
    'The sandbox has no network but an HTTP proxy, which the usual environment variables name. It reaches public hosts over HTTP and HTTPS; other protocols such as SSH do not work.',
    secrets.length === 0
      ? 'You have no secrets. Do not ask for one.'
      : `These environment variables hold placeholders. The real value is put in on the way out, in request headers and query strings, only over HTTPS and only to the hosts named. You cannot read the values; sending a placeholder anywhere else is refused.\n${secrets
          .map((secret) => `- ${secret.name}: ${secret.allowedHosts.join(', ')}`)
          .join('\n')}`,
    'What you change in the workspace is shown as a diff when you end. Commit or push only when you are asked to.',
  ].join('\n\n');
}

/** The first turn: what the automation is for, and what started this run. */
export const firstPrompt = (instructions: string, message: string | null): string =>
  message === null ? instructions : `${instructions}\n\n${message}`;

/** A follow-up whose workspace was removed in the meantime starts over and is told what was before. */
export function restartedPrompt(
  instructions: string,
  earlier: { message: string | null; answer: string | null },
  message: string,
): string {
  return [
    instructions,
    'You worked on this before, but the workspace of that time has been removed: the repositories are checked out anew, without your changes.',
    ...(earlier.message === null ? [] : [`The earlier message was:\n${earlier.message}`]),
    ...(earlier.answer === null ? [] : [`Your earlier answer was:\n${earlier.answer}`]),
    `The new message is:\n${message}`,
  ].join('\n\n');
}
