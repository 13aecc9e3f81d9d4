// What the scripts of tests can call.

// Made-up pointers cannot be captured.
Element.prototype.setPointerCapture = () => {};

const one = selector => document.querySelector(selector);
const all = selector => [...document.querySelectorAll(selector)];
const text = selector => one(selector).textContent;
const sleep = ms => new Promise(resolve => setTimeout(resolve, ms));
/** Until all that was asked for is drawn. */
const settle = () => new Promise(resolve => requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(resolve))));

const chart = () => one("#timeline .chart");
/** The map of all segments, below that of the enlarged one. */
const map = () => all("#moment-panel .map").at(-1);
const figures = () => Object.fromEntries(Object.entries(one("#moment-panel .with-aside > .aside").dataset)
  .map(([name, value]) => [name, Number(value)]));
const range = () => new URLSearchParams(location.hash.slice(1)).get("range")?.split("~").map(Number) ?? null;

async function key(name, target = document.body) {
  target.dispatchEvent(new KeyboardEvent("keydown", { key: name, bubbles: true, cancelable: true }));
  await settle();
}

/** An event of the pointer at a place of an element, from its left upper corner. */
async function pointer(element, type, x, y, more = {}) {
  const box = element.getBoundingClientRect();
  const at = { clientX: box.left + x, clientY: box.top + y, bubbles: true, cancelable: true, pointerId: 1, button: 0, ...more };
  element.dispatchEvent(type === "wheel" ? new WheelEvent(type, at) : new PointerEvent(type, at));
  await settle();
}

async function click(element) {
  element.click();
  await settle();
}

/** The colours of a canvas's pixels, as "r,g,b,a", with how often each occurs. */
function colors(canvas) {
  const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
  const counts = {};
  for (let i = 0; i < data.length; i += 4) {
    const color = data.slice(i, i + 4).join();
    counts[color] = (counts[color] ?? 0) + 1;
  }
  return counts;
}

function pixel(canvas, x, y) {
  return [...canvas.getContext("2d").getImageData(x, y, 1, 1).data].join();
}

/** The colour of a group, as `colors` writes it. A pattern has lines of another colour. */
function colorOf(name) {
  const swatch = all(".swatch[data-color]").find(swatch => swatch.nextElementSibling?.textContent === name);
  return [1, 3, 5].map(place => Number.parseInt(swatch.dataset.color.slice(place, place + 2), 16)).concat(255).join();
}

/** Whether this colour is at a place, or as near to its right as the lines of a pattern are wide. */
function isColored(canvas, x, y, color) {
  return [0, 1, 2, 3, 4].some(aside => pixel(canvas, x + aside, y) === color);
}

/** How many pixels of the chart are red in the row, and in the column, that has the most of them. */
function redLines() {
  const canvas = chart();
  const { data, width, height } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
  const [rows, columns] = [new Array(height).fill(0), new Array(width).fill(0)];
  for (let i = 0; i < data.length; i += 4) {
    if (data[i] !== 179 || data[i + 1] !== 38 || data[i + 2] !== 30) continue;
    rows[Math.floor(i / 4 / width)]++;
    columns[(i / 4) % width]++;
  }
  return { line: Math.max(...rows), mark: Math.max(...columns) };
}

async function report(script) {
  let answer;
  try {
    for (let tries = 0; !document.documentElement.dataset.ready; tries++) {
      if (tries === 500) throw new Error(`the page has not drawn itself: ${one("#page").textContent}`);
      await sleep(20);
    }
    answer = { value: (await script()) ?? null };
  } catch (error) {
    answer = { error: `${error}\n${error.stack}` };
  }
  const bytes = new TextEncoder().encode(JSON.stringify(answer).replaceAll("\u00a0", " "));
  document.documentElement.dataset.answer = btoa(Array.from(bytes, byte => String.fromCharCode(byte)).join(""));
  // Of a page in a frame, to the one around it.
  if (parent !== window) parent.postMessage(document.documentElement.dataset.answer, "*");
}
