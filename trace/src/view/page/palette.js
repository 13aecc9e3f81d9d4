// Colours that can be told apart with colour blindness, too: six hues (Paul Tol's "bright", lighter on dark), each plain, with
// rising stripes, and with falling ones. Without any hue, the stripes, the order in the stack, and the names are left.

const HUES = {
  light: ["#4477aa", "#ee6677", "#228833", "#ccbb44", "#66ccee", "#aa3377"],
  dark: ["#5b93c9", "#f0788a", "#3fa34d", "#d6c755", "#73d2f0", "#c65aa0"],
};
const OTHERS = { light: "#a7adb5", dark: "#7d8590" };
const PATTERNS = ["plain", "rising", "falling"];
const COLORS = HUES.light.length * PATTERNS.length;

/** The number of series with a colour of their own. One more is grey, for all others. */
const SERIES = 11;

function theme() {
  return document.documentElement.dataset.theme === "dark" ? "dark" : "light";
}

/** A colour of the style sheet. */
function ink(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}

/** The place of each series' colour among all colours. */
let colorPlaces = [];

/** A number that a name always has, on every page. */
function hashOf(name) {
  let hash = 0x811c9dc5;
  for (const byte of new TextEncoder().encode(name)) hash = Math.imul(hash ^ byte, 0x01000193) >>> 0;
  return (hash ^ (hash >>> 15)) >>> 0;
}

/**
 * Gives the series with these names, from the bottom of the stack to its top, their colours. A name has the same colour on every
 * page, unless another name of the page, earlier in the alphabet, has its hue. Then it gets a hue that few others have, and none of
 * its neighbours in the stack: up to six series differ in their hues, not only in their stripes.
 */
function assignColors(names) {
  const hues = HUES.light.length;
  const uses = new Array(hues).fill(0);
  colorPlaces = new Array(names.length).fill(null);
  const give = (series, place) => {
    colorPlaces[series] = place;
    uses[place % hues]++;
  };
  const own = series => hashOf(names[series]) % COLORS;
  const order = names.map((_, series) => series).sort((one, other) => (names[one] < names[other] ? -1 : 1));
  for (const series of order) if (uses[own(series) % hues] === 0) give(series, own(series));
  for (const series of order.filter(series => colorPlaces[series] === null)) {
    const places = Array.from({ length: COLORS }, (_, step) => (own(series) + step) % COLORS).filter(place => !colorPlaces.includes(place));
    const beside = [colorPlaces[series - 1], colorPlaces[series + 1]].filter(place => place != null).map(place => place % hues);
    const likeness = place => uses[place % hues] + (beside.includes(place % hues) ? COLORS : 0);
    give(series, places.reduce((best, place) => (likeness(place) < likeness(best) ? place : best)));
  }
}

/** The colour of a series, and its pattern. */
function colorOf(series) {
  if (series >= SERIES) return { color: OTHERS[theme()], pattern: "plain" };
  const hues = HUES[theme()];
  const place = colorPlaces[series] ?? 0;
  return { color: hues[place % hues.length], pattern: PATTERNS[Math.floor(place / hues.length)] };
}

/** The colour of the lines of a pattern. */
function patternLine(color) {
  const [ground, part] = theme() === "dark" ? [0, 0.35] : [255, 0.4];
  return `#${channels(color).map(value => Math.round(value + (ground - value) * part).toString(16).padStart(2, "0")).join("")}`;
}

/** The red, green and blue of "#rrggbb". */
function channels(color) {
  return [1, 3, 5].map(place => Number.parseInt(color.slice(place, place + 2), 16));
}

/** The fill style of a series. */
function fillOf(context, series) {
  const { color, pattern } = colorOf(series);
  return pattern === "plain" ? color : stripes(context, color, patternLine(color), 8, 1.8, pattern === "falling");
}

/** A pattern of slanting lines on a ground. */
function stripes(context, ground, line, size, width, back = false) {
  const ratio = window.devicePixelRatio || 1;
  const tile = document.createElement("canvas");
  tile.width = tile.height = Math.round(size * ratio);
  const pen = tile.getContext("2d");
  pen.fillStyle = ground;
  pen.fillRect(0, 0, tile.width, tile.height);
  pen.strokeStyle = line;
  pen.lineWidth = width * ratio;
  const side = tile.width;
  for (const shift of [-side, 0, side]) {
    pen.beginPath();
    if (back) {
      pen.moveTo(shift, 0);
      pen.lineTo(shift + side, side);
    } else {
      pen.moveTo(shift, side);
      pen.lineTo(shift + side, 0);
    }
    pen.stroke();
  }
  const pattern = context.createPattern(tile, "repeat");
  pattern.setTransform(new DOMMatrix().scale(1 / ratio));
  return pattern;
}

/** The fill style of free memory, by its state. */
function freeFill(context, state) {
  const [ground, line] = [ink("free"), ink("free-line")];
  if (state === "pending") return stripes(context, ground, ink("pending"), 6, 2, true);
  if (state === "withheld") return stripes(context, ink("withheld"), ground, 6, 2, true);
  if (state === "free") return ground;
  return stripes(context, ground, line, 7, 1);
}

/** A series' colour as a small box. */
function swatch(series) {
  const box = element("span", { class: "swatch", "aria-hidden": "true" });
  if (typeof series === "string") {
    box.classList.add(`swatch-${series}`);
    return box;
  }
  const { color, pattern } = colorOf(series);
  const slant = pattern === "rising" ? -45 : 45;
  box.dataset.color = color;
  box.style.background = pattern === "plain"
    ? color
    : `repeating-linear-gradient(${slant}deg, ${color} 0 3px, ${patternLine(color)} 3px 5px)`;
  return box;
}
