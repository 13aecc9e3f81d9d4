// Formats numbers for display.

/** A space without a line break. */
const SPACE = "\u00a0";
const UNITS = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];

/** The power of 1024 of the unit that suits a number of bytes. */
function unitOf(bytes) {
  let unit = 0;
  while (unit < UNITS.length - 1 && Math.abs(bytes) >= 1024 ** (unit + 1)) unit++;
  return unit;
}

/** Three significant digits and a unit: "3.04 GiB". */
function bytesText(bytes) {
  const unit = unitOf(bytes);
  const value = bytes / 1024 ** unit;
  if (unit === 0) return `${value}${SPACE}B`;
  const digits = value >= 100 ? 0 : value >= 10 ? 1 : 2;
  return `${value.toFixed(digits)}${SPACE}${UNITS[unit]}`;
}

/** Three significant digits, and every byte: "3.04 GiB (3,264,421,888 bytes)". */
function bytesInFull(bytes) {
  return bytes < 1024 ? `${bytes} bytes` : `${bytesText(bytes)} (${countText(bytes)} bytes)`;
}

/** A number of bytes with its sign: "+3.04 MiB". */
function differenceText([before, after]) {
  const sign = after > before ? "+" : after < before ? "−" : "±";
  return `${sign}${bytesText(Math.abs(after - before))}`;
}

function countText(count) {
  return count.toLocaleString("en-US");
}

/** "1 block", "2 blocks". */
function counted(count, what) {
  return `${countText(count)} ${what}${count === 1 ? "" : "s"}`;
}

function percentText(part) {
  const percent = part * 100;
  return `${percent > 0 && percent < 9.95 ? percent.toFixed(1) : percent.toFixed(0)}${SPACE}%`;
}

const TIMES = [["ns", 1], ["µs", 1e3], ["ms", 1e6], ["s", 1e9]];

/** The largest unit that a span of time has at least one of, with its nanoseconds. */
function timeUnit(ns) {
  return TIMES.findLast(([, size]) => Math.abs(ns) >= size) ?? TIMES[0];
}

/** A span of time in nanoseconds: "1.25 ms", "3 min 20 s". With `more` digits, where events are close to each other. */
function timeText(ns, more = 0) {
  if (ns >= 86400e9) return `${(ns / 86400e9).toFixed(1)} days`;
  if (ns >= 120e9) {
    const seconds = Math.floor(ns / 1e9);
    const [hours, minutes] = [Math.floor(seconds / 3600), Math.floor(seconds / 60) % 60];
    return hours > 0 ? `${hours} h ${minutes} min` : `${minutes} min ${seconds % 60} s`;
  }
  const [name, size] = timeUnit(ns);
  const value = ns / size;
  const digits = value >= 100 ? 0 : value >= 10 ? 1 : 2;
  return `${value.toFixed(size === 1 ? 0 : digits + more)}${SPACE}${name}`;
}

/** Round numbers from `low` to `high`, at most about `most`, and the step between them. */
function ticks(low, high, most) {
  const least = (high - low) / Math.max(1, most);
  if (!(least > 0)) return { step: 1, places: [low] };
  const power = 10 ** Math.floor(Math.log10(least));
  const step = power * ([1, 2, 5].find(factor => factor * power >= least) ?? 10);
  const places = [];
  for (let i = Math.ceil(low / step); i * step <= high * (1 + 1e-12); i++) places.push(i * step);
  return { step, places };
}

/** Ticks for bytes: round in their unit. */
function bytesTicks(high, most) {
  const unit = 1024 ** unitOf(high);
  const { step, places } = ticks(0, high / unit, most);
  return places.map(place => ({
    at: place * unit,
    text: place === 0 ? "0" : `${place.toFixed(digitsOf(step))} ${UNITS[unitOf(high)]}`,
  }));
}

/** Ticks for times, all in the unit of the last, or in seconds. */
function timeTicks(low, high, most) {
  const [name, size] = timeUnit(high);
  const { step, places } = ticks(low / size, high / size, most);
  return places.map(place => ({ at: place * size, text: `${place.toFixed(digitsOf(step))} ${name}` }));
}

/** The number of digits behind the point in multiples of a step. */
function digitsOf(step) {
  return Math.max(0, Math.ceil(-Math.log10(step) - 1e-9));
}
