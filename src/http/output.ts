import { type ZodType, z } from 'zod';

/** Brings an answer into its documented shape. */
export type OutputFilter = (value: unknown) => unknown;

/**
 * Compiles an output schema, once, into what an answer has to pass on its way out: undocumented fields stay inside,
 * and each value must be of its documented kind. Formats and limits are not looked at again, and texts are not
 * trimmed again: that was done when the value came in, and costs ten times as much. Where the value does not fit, the
 * schema itself judges it: it throws the `ZodError` that names the places.
 */
export function outputFilter(schema: ZodType): OutputFilter {
  const filter = filterOf(schema);
  return (value) => {
    const filtered = filter(value);
    return filtered === misfit ? schema.parse(value) : filtered;
  };
}

/** Answered instead of a value that is not of its kind. */
const misfit = Symbol('misfit');

function filterOf(schema: z.core.$ZodType): OutputFilter {
  if (schema instanceof z.ZodObject) return schema.def.catchall ? judgedBy(schema) : objectFilter(schema.shape);
  if (schema instanceof z.ZodArray) return arrayFilter(filterOf(schema.element));
  if (schema instanceof z.ZodNullable) return orFilter(null, filterOf(schema.unwrap()));
  if (schema instanceof z.ZodOptional) return orFilter(undefined, filterOf(schema.unwrap()));
  if (schema instanceof z.ZodDiscriminatedUnion) return choiceFilter(schema);
  if (schema instanceof z.ZodEnum) return memberFilter(new Set<unknown>(schema.options));
  if (schema instanceof z.ZodLiteral) return memberFilter(schema.values);
  if (schema instanceof z.ZodString || schema instanceof z.ZodStringFormat) return textFilter;
  if (schema instanceof z.ZodNumber) return schema.isInt ? wholeFilter : numberFilter;
  if (schema instanceof z.ZodBoolean) return flagFilter;
  if (schema instanceof z.ZodUnknown) return anythingFilter;
  if (schema instanceof z.ZodRecord && isAnyMap(schema)) return mapFilter;
  return judgedBy(schema);
}

const isAnyMap = ({ keyType, valueType }: z.ZodRecord): boolean =>
  keyType instanceof z.ZodString && valueType instanceof z.ZodUnknown;

/** For the kinds that are seldom in an answer (other unions, defaults, transformations): all of what the schema says. */
function judgedBy(schema: z.core.$ZodType): OutputFilter {
  return (value) => {
    const result = z.safeParse(schema, value);
    return result.success ? result.data : misfit;
  };
}

const textFilter: OutputFilter = (value) => (typeof value === 'string' ? value : misfit);
const flagFilter: OutputFilter = (value) => (typeof value === 'boolean' ? value : misfit);
const wholeFilter: OutputFilter = (value) => (Number.isSafeInteger(value) ? value : misfit);
const anythingFilter: OutputFilter = (value) => value;
const mapFilter: OutputFilter = (value) => (isObject(value) ? value : misfit);
const numberFilter: OutputFilter = (value) => (Number.isFinite(value) ? value : misfit);

const memberFilter =
  (members: ReadonlySet<unknown>): OutputFilter =>
  (value) =>
    members.has(value) ? value : misfit;

/** One value that is right as it is, or what the inner filter takes. */
const orFilter =
  (exempt: null | undefined, inner: OutputFilter): OutputFilter =>
  (value) =>
    value === exempt ? value : inner(value);

const isObject = (value: unknown): value is Readonly<Record<string, unknown>> =>
  typeof value === 'object' && value !== null && !Array.isArray(value);

/** Answers the very object where nothing has to be taken out of it: to copy it would cost more than to look at it. */
function objectFilter(shape: Readonly<Record<string, z.core.$ZodType>>): OutputFilter {
  const fields = Object.entries(shape).map(([name, schema]) => ({ name, filter: filterOf(schema) }));
  return (value) => {
    if (!isObject(value)) return misfit;
    let isWhole = Object.getPrototypeOf(value) === Object.prototype;
    let documented = 0;
    for (const { name, filter } of fields) {
      const given = value[name];
      const kept = filter(given);
      if (kept === misfit) return misfit;
      if (kept !== given) isWhole = false;
      if (kept !== undefined) documented += 1;
    }
    if (isWhole && Object.keys(value).length === documented) return value;
    return Object.fromEntries(fields.map(({ name, filter }) => [name, filter(value[name])]));
  };
}

function arrayFilter(item: OutputFilter): OutputFilter {
  return (value) => {
    if (!Array.isArray(value)) return misfit;
    let isWhole = true;
    for (const given of value) {
      const kept = item(given);
      if (kept === misfit) return misfit;
      if (kept !== given) isWhole = false;
    }
    return isWhole ? value : value.map(item);
  };
}

/** The field that tells the options apart chooses; options that cannot be told apart by it alone are judged as a whole. */
function choiceFilter(schema: z.ZodDiscriminatedUnion): OutputFilter {
  const name = schema.def.discriminator;
  const filters = new Map<unknown, OutputFilter>();
  for (const option of schema.options) {
    const mark = option instanceof z.ZodObject ? option.shape[name] : undefined;
    if (!(mark instanceof z.ZodLiteral)) return judgedBy(schema);
    for (const value of mark.values) filters.set(value, filterOf(option));
  }
  return (value) => (isObject(value) ? (filters.get(value[name])?.(value) ?? misfit) : misfit);
}
