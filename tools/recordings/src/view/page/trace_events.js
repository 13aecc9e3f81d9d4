// The history in the Trace Event Format of Chrome, which Perfetto (ui.perfetto.dev) and chrome://tracing open: counters of bytes, each block
// as a slice over its life, and failures and what the pool did as marks. Times there are in microseconds; without times, an event is one.

const PROCESS = 1;

/** The events, in parts of text that make one JSON document together. */
function traceEvents(program) {
  const { numbers } = program;
  const micros = (moment, own = null) => (program.times ? (own ?? program.place(moment, "time")) / 1000 : moment);
  const parts = ['{"displayTimeUnit":"ns","traceEvents":[\n'];
  let lines = [];
  const flush = () => {
    parts.push(lines.join(""));
    lines = [];
  };
  const add = event => {
    lines.push(`${JSON.stringify({ pid: PROCESS, tid: 1, ...event })},\n`);
    if (lines.length === 10_000) flush();
  };
  const counter = (name, ts, bytes) => add({ ph: "C", name, ts, args: { bytes } });
  const mark = (name, ts, args) => add({ ph: "i", s: "p", name, ts, args });
  const now = new Float64Array(SERIES + 1);
  for (let event = 0; event < program.block.length; event++) {
    const isFree = program.block[event] < 0;
    const block = isFree ? ~program.block[event] : program.block[event];
    const bytes = program.asked[block];
    const series = program.seriesOf[program.numberOf[block]];
    const ts = micros(event + 1);
    const slice = { cat: "block", name: program.nameOf(block), id: String(block + 1), ts };
    if (isFree) add({ ph: "e", ...slice });
    else add({ ph: "b", ...slice, args: { bytes, stream: program.streamOf(block), stack: program.stackOf(block).join("\n") || undefined } });
    now[series] += isFree ? -bytes : bytes;
    counter("in use", ts, program.active[event + 1]);
    counter(`in use: ${program.seriesName(series)}`, ts, now[series]);
    if (program.reserved[event + 1] !== program.reserved[event] || event === 0) counter("reserved", ts, program.reserved[event + 1]);
  }
  for (const { moment, time_ns: time, what, bytes, text } of numbers.pool_events) {
    if (!POOLS_SEGMENTS.includes(what)) mark(what, micros(moment, time), { bytes, text });
  }
  for (const { moment, time_ns: time, bytes, group } of numbers.shortages) mark("out of memory", micros(moment, time), { bytes, group });
  if (numbers.out_of_memory) mark("out of memory", micros(program.moments), { bytes: numbers.out_of_memory.requested_bytes, group: numbers.out_of_memory.group });
  flush();
  // The last has no comma after it.
  parts.push(`${JSON.stringify({ pid: PROCESS, ph: "M", name: "process_name", args: { name: numbers.file } })}\n]}\n`);
  return parts;
}

/** A button that saves the history as a file for Perfetto. */
function exportButton(program) {
  const file = numbers => `${numbers.file.split("/").pop().replace(/\.(gz|html|trace|pickle)\b/g, "")}.perfetto.json`;
  return element("button", { type: "button", class: "button", id: "export", title: "Save it for ui.perfetto.dev or chrome://tracing (x)", onclick: () => {
    const url = URL.createObjectURL(new Blob(traceEvents(program), { type: "application/json" }));
    element("a", { href: url, download: file(program.numbers) }).click();
    // The browser reads it after the click.
    setTimeout(() => URL.revokeObjectURL(url), 60_000);
  } }, "Export");
}
