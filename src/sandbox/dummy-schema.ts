import { z } from 'zod';

/** What a step learns is told as a command with its output; with `raw` the output alone is printed, as it is. */
const raw = z.boolean().default(false);

/** One thing that the dummy's program does. The dummy harness writes the script, the dummy sandbox plays it. */
export const DummyStep = z.discriminatedUnion('do', [
  /** Prints the line as it is. */
  z.object({ do: z.literal('print'), line: z.string() }),
  /** Writes to standard error. */
  z.object({ do: z.literal('complain'), line: z.string() }),
  /** Says something, as an agent does. */
  z.object({ do: z.literal('message'), text: z.string() }),
  /** Pretends that a command was run. */
  z.object({ do: z.literal('tool'), command: z.string(), output: z.string(), exitCode: z.int() }),
  /** Writes a file; a relative path begins in the working directory. Folders are made. It tells so unless `quiet`. */
  z.object({
    do: z.literal('write'),
    path: z.string(),
    content: z.string(),
    quiet: z.boolean().default(false),
  }),
  /** Tells a file's text; one that is missing ends the program with 1. */
  z.object({ do: z.literal('read'), path: z.string(), raw }),
  /** Tells the value of a variable of the environment; one that is missing ends the program with 1. */
  z.object({ do: z.literal('environment'), name: z.string(), raw }),
  /** Prints the working directory. */
  z.object({ do: z.literal('where') }),
  /** Asks the model through the gateway and says its answer; an error is reported and ends the program with 1. */
  z.object({ do: z.literal('model'), prompt: z.string() }),
  /** GETs a path from the gateway and tells the body. The exit status is 22 from status 400 on, as curl's is. */
  z.object({ do: z.literal('gateway'), path: z.string(), raw }),
  /** GETs a plain http address through the proxy and tells the body. The exit status is as for `gateway`. */
  z.object({
    do: z.literal('request'),
    url: z.string(),
    headers: z.record(z.string(), z.string()).default({}),
    raw,
  }),
  /** Waits until the file exists. */
  z.object({ do: z.literal('await_file'), path: z.string() }),
  /** Waits until it is stopped: 143. */
  z.object({ do: z.literal('wait') }),
  /** Waits until it is killed: 137. A script that holds this step ignores SIGTERM from its first step on. */
  z.object({ do: z.literal('ignore_stop') }),
  /** Tells the world that it came here and waits until the test opens the gate. */
  z.object({ do: z.literal('gate'), name: z.string() }),
  /** Prints numbered lines until it is stopped, never more than a thousand ahead of the fastest reader. */
  z.object({ do: z.literal('print_forever') }),
  z.object({ do: z.literal('exit'), code: z.int().min(0).max(255), outOfMemory: z.boolean().default(false) }),
]);
export type DummyStep = z.infer<typeof DummyStep>;
/** A step as a test writes it, without what has a default. */
export type DummyStepInput = z.input<typeof DummyStep>;

/** Where the script lies inside the sandbox. */
export const dummyScriptPath = '/state/dummy/script.json';

export const DummyScript = z.object({
  /** What the program reports as its session before the first step; null where it has none. */
  sessionId: z.string().nullable(),
  steps: z.array(DummyStep),
});
export type DummyScript = z.infer<typeof DummyScript>;

/** A line of the dummy's own event stream. */
export const DummyLine = z.discriminatedUnion('type', [
  z.object({ type: z.literal('session'), sessionId: z.string().regex(/^[0-9A-Za-z][\w-]{0,127}$/) }),
  z.object({ type: z.literal('message'), text: z.string() }),
  z.object({ type: z.literal('tool'), command: z.string(), output: z.string(), exitCode: z.int() }),
  z.object({ type: z.literal('file'), path: z.string() }),
  z.object({ type: z.literal('error'), message: z.string() }),
]);
export type DummyLine = z.infer<typeof DummyLine>;
