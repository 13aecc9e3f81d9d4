// Numbers as people read them.

const UNITS = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];

/** How many times 1024 goes into the unit that suits a number of bytes. */
function unitOf(bytes) {
  let unit = 0;
  while (unit < UNITS.length - 1 && Math.abs(bytes) >= 1024 ** (unit + 1)) unit++;
  return unit;
}

/** Three digits that count, and a unit: "3.04 GiB". */
function bytesText(bytes) {
  const unit = unitOf(bytes);
  const value = bytes / 1024 ** unit;
  if (unit === 0) return `${value} B`;
  const digits = value >= 100 ? 0 : value >= 10 ? 1 : 2;
  return `${value.toFixed(digits)} ${UNITS[unit]}`;
}

/** The same, and every byte: "3.04 GiB (3,264,421,888 bytes)". */
function bytesInFull(bytes) {
  return bytes < 1024 ? `${bytes} bytes` : `${bytesText(bytes)} (${countText(bytes)} bytes)`;
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
  return `${percent > 0 && percent < 9.95 ? percent.toFixed(1) : percent.toFixed(0)} %`;
}

const TIMES = [["ns", 1], ["µs", 1e3], ["ms", 1e6], ["s", 1e9]];

/** A span of time in nanoseconds, in the unit that suits it, or that suits `like`. */
function timeText(ns, like = ns, digits = 3) {
  if (like >= 120e9) {
    const seconds = Math.floor(ns / 1e9);
    const parts = [Math.floor(seconds / 3600), Math.floor(seconds / 60) % 60, seconds % 60];
    if (like >= 86400e9) return `${(ns / 86400e9).toFixed(1)} days`;
    const [h, m, s] = parts;
    return h > 0 ? `${h} h ${m} min` : `${m} min ${s} s`;
  }
  let unit = 0;
  while (unit < TIMES.length - 1 && Math.abs(like) >= TIMES[unit + 1][1]) unit++;
  const value = ns / TIMES[unit][1];
  const whole = Math.abs(value) >= 100 ? 0 : Math.abs(value) >= 10 ? 1 : 2;
  return `${unit === 0 ? Math.round(value) : value.toFixed(Math.min(whole, digits))} ${TIMES[unit][0]}`;
}

/** Round numbers from `low` to `high`, at most about `most`, each with its text by `text(number, step)`. */
function ticks(low, high, most, factors = [1, 2, 5, 10]) {
  const least = (high - low) / Math.max(1, most);
  if (!(least > 0)) return { step: 1, places: [low] };
  const power = 10 ** Math.floor(Math.log10(least));
  const step = power * (factors.find(factor => factor * power >= least) ?? 10);
  const places = [];
  for (let i = Math.ceil(low / step); i * step <= high * (1 + 1e-12); i++) places.push(i * step);
  return { step, places };
}

/** Ticks for bytes: round in their unit. */
function bytesTicks(high, most) {
  const unit = 1024 ** unitOf(high);
  const { step, places } = ticks(0, high / unit, most);
  const digits = step >= 1 ? 0 : Math.ceil(-Math.log10(step) - 1e-9);
  return places.map(place => ({
    at: place * unit,
    text: place === 0 ? "0" : `${place.toFixed(digits)} ${UNITS[unitOf(high)]}`,
  }));
}
