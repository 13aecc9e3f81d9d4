// Colours that can be told apart with colour blindness, too: six hues (Paul Tol's "bright", lighter on dark), each plain, and with
// stripes. Without any hue, the stripes, the order in the stack, and the names are left.

/**
 * From the bottom of the stack to its top. In this order, neighbours and the first after the last are as far apart as they can be for eyes
 * without red, green or blue cones, and those that are hard to tell apart for some, blue and green, are not near each other.
 */
const HUES = {
  light: ["#4477aa", "#ee6677", "#66ccee", "#228833", "#aa3377", "#ccbb44"],
  dark: ["#5b93c9", "#f0788a", "#73d2f0", "#3fa34d", "#c65aa0", "#d6c755"],
};
const OTHERS = { light: "#a7adb5", dark: "#7d8590" };
/** For what needs to be told apart and has no meaning of its own. */
const GREYS = { light: ["#8d99a8", "#b4bdc8"], dark: ["#697687", "#8a95a4"] };
const PATTERNS = ["plain", "rising"];

/** The number of series with a colour of their own. One more is grey, for all others. */
const SERIES = 11;

function theme() {
  return document.documentElement.dataset.theme === "dark" ? "dark" : "light";
}

/** A colour of the style sheet. */
function ink(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}

/** The colour of a series, by its place in the stack, and its pattern: two of one hue are six places apart. */
function colorOf(series) {
  if (series >= SERIES) return { color: OTHERS[theme()], pattern: "plain" };
  const hues = HUES[theme()];
  return { color: hues[series % hues.length], pattern: PATTERNS[Math.floor(series / hues.length)] };
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
  return pattern === "plain" ? color : stripes(context, color, patternLine(color), 8, 1.8);
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
  box.dataset.color = color;
  box.style.background = pattern === "plain"
    ? color
    : `repeating-linear-gradient(-45deg, ${color} 0 3px, ${patternLine(color)} 3px 5px)`;
  return box;
}
