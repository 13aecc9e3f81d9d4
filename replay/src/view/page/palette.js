// Colours that can be told apart with colour blindness, too: six hues (Paul Tol's "bright", lighter on dark), and the same with
// stripes. Without any hue, the stripes, the order in the stack, and the names are left.

const HUES = {
  light: ["#4477aa", "#ee6677", "#228833", "#ccbb44", "#66ccee", "#aa3377"],
  dark: ["#5b93c9", "#f0788a", "#3fa34d", "#d6c755", "#73d2f0", "#c65aa0"],
};
const GREYS = {
  light: { other: "#a7adb5", stripe: "rgba(255,255,255,.55)" },
  dark: { other: "#7d8590", stripe: "rgba(0,0,0,.45)" },
};

/** The number of series with a colour of their own. One more is grey, for all others. */
const SERIES = 11;

function theme() {
  return document.documentElement.dataset.theme === "dark" ? "dark" : "light";
}

/** A colour of the style sheet. */
function ink(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}

/** The colour of a series, and whether it has stripes. */
function colorOf(series) {
  const hues = HUES[theme()];
  if (series >= SERIES) return { color: GREYS[theme()].other, striped: false };
  return { color: hues[series % hues.length], striped: series >= hues.length };
}

/** The fill style of a series. */
function fillOf(context, series) {
  const { color, striped } = colorOf(series);
  return striped ? stripes(context, color, GREYS[theme()].stripe, 7, 2.2) : color;
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
  const { color, striped } = colorOf(series);
  box.style.background = striped
    ? `repeating-linear-gradient(-45deg, ${color} 0 3px, color-mix(in srgb, ${color} 45%, ${ink("panel")}) 3px 5px)`
    : color;
  return box;
}
