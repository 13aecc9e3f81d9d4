// Filters of blocks: `conv >1MiB life<5ms stream=1`. All words must hold.

const SIZES = { "": 1, b: 1, k: 2 ** 10, kb: 1e3, kib: 2 ** 10, m: 2 ** 20, mb: 1e6, mib: 2 ** 20, g: 2 ** 30, gb: 1e9, gib: 2 ** 30, tib: 2 ** 40 };
const SPANS = { ns: 1, us: 1e3, "µs": 1e3, ms: 1e6, s: 1e9, min: 60e9 };
const COMPARE = {
  ">": (one, other) => one > other, "<": (one, other) => one < other, "=": (one, other) => one === other,
  ">=": (one, other) => one >= other, "<=": (one, other) => one <= other,
};

/** A number with a unit of `units`, as [value, unit]; null for anything else. */
function measured(text, units) {
  const [, number, unit] = text.match(/^(\d+(?:\.\d+)?)\s*([a-zµ]*)$/i) ?? [];
  const factor = units[unit?.toLowerCase()];
  return factor === undefined ? null : [Number(number) * factor, unit];
}

/**
 * The filter that a text describes: { test(subject), usesAge, error }. A subject has `name`, `bytes`, `stream`, `stack` (its
 * frames), and `life` and `age` as [events, nanoseconds or null]. An `age` of null is that of a block that is not in use at the pinned moment.
 */
function filterOf(text, hasTimes) {
  const tests = [];
  let usesAge = false;
  const fail = error => ({ test: () => true, usesAge: false, isEmpty: true, error });
  for (const word of text.match(/[a-z]*[<>=]+"[^"]*"|"[^"]*"|\S+/gi) ?? []) {
    const [, field, sign, value] = word.match(/^([a-z]*)(>=|<=|>|<|=)(.*)$/i) ?? [];
    if (sign === undefined) {
      const part = word.replaceAll('"', "").toLowerCase();
      const known = new Map();
      tests.push(({ name }) => {
        if (!known.has(name)) known.set(name, name.toLowerCase().includes(part));
        return known.get(name);
      });
      continue;
    }
    const compare = COMPARE[sign];
    const what = field.toLowerCase();
    if (what === "" || what === "size") {
      const size = measured(value, SIZES);
      if (!size) return fail(`${word} has no size: write one such as ${what}${sign}1MiB`);
      tests.push(({ bytes }) => compare(bytes, size[0]));
    } else if (what === "stream") {
      if (!/^\d+$/.test(value)) return fail(`${word} has no number: write one such as stream${sign}1`);
      tests.push(({ stream }) => compare(stream, Number(value)));
    } else if (what === "stack") {
      const part = value.replaceAll('"', "").toLowerCase();
      if (sign !== "=") return fail(`${word}: a stack can only be compared with =`);
      const known = new Map();
      tests.push(({ stack }) => {
        if (!known.has(stack)) known.set(stack, stack.some(frame => frame.toLowerCase().includes(part)));
        return known.get(stack);
      });
    } else if (what === "name") {
      const name = value.replaceAll('"', "");
      if (sign !== "=") return fail(`${word}: a name can only be compared with =`);
      tests.push(subject => subject.name === name);
    } else if (what === "age" || what === "life" || what === "lifetime") {
      const span = measured(value, { ...SPANS, "": 1 });
      if (!span) return fail(`${word} has no time: write one such as ${what}${sign}5ms, or a number of events`);
      const inTime = span[1] !== "";
      if (inTime && !hasTimes) return fail(`${word}: this recording has no times; compare with a number of events`);
      const of = what === "age" ? "age" : "life";
      usesAge ||= of === "age";
      tests.push(subject => subject[of] !== null && compare(subject[of][inTime ? 1 : 0], span[0]));
    } else {
      return fail(`${word}: a block has no ${field}; it has a name, size, age, life, stream and stack`);
    }
  }
  return { test: subject => tests.every(test => test(subject)), usesAge, isEmpty: tests.length === 0, error: null };
}
