import { cpus } from 'node:os';
import type { Figure } from './figures.ts';
import { measureReads } from './reads.ts';
import { measureRuns } from './runs.ts';
import { setUp } from './server.ts';
import { measureStart } from './start.ts';

const parts = { runs: measureRuns, reads: measureReads, start: measureStart };

/** `npm run bench [-- runs|reads|start …]`: measures in one run and prints a table. Nothing is asserted. */
const wanted = process.argv.slice(2);
const unknown = wanted.find((name) => !Object.hasOwn(parts, name));
if (unknown !== undefined)
  throw new Error(`There is no part "${unknown}"; there are ${Object.keys(parts).join(', ')}.`);

await using bench = await setUp();
console.log(`Slipway benchmark on ${cpus().length} × ${cpus()[0]?.model ?? 'CPU'}, Bun ${Bun.version}\n`);
const figures: Figure[] = [];
for (const [name, measure] of Object.entries(parts)) {
  if (wanted.length > 0 && !wanted.includes(name)) continue;
  console.log(`measuring ${name} …`);
  figures.push(...(await measure(bench)));
}
console.log('\n| what | measured | goal | | detail |\n|---|---|---|---|---|');
for (const { name, value, goal, met, detail } of figures) {
  console.log(`| ${name} | ${value} | ${goal} | ${met ? 'met' : 'missed'} | ${detail} |`);
}
