// The bytes in use by call stack, as a flame graph: a row for each depth, with the frame at which the program begins on top, and each
// frame as wide as the bytes that were requested below it. See Brendan Gregg, "The Flame Graph", 2016.

/** A number that a name always has, so that a frame has the same hue on every page. */
function hashOf(name) {
  let hash = 0x811c9dc5;
  for (const byte of new TextEncoder().encode(name)) hash = Math.imul(hash ^ byte, 0x01000193) >>> 0;
  return (hash ^ (hash >>> 15)) >>> 0;
}

/** Frames that are narrower than this part of the graph are not drawn. */
const NARROWEST = 0.001;

class FlameGraph {
  constructor(tree) {
    this.tree = tree;
    /** The node that has the whole width. */
    this.node = 0;
    this.note = element("p", { class: "quiet map-key", id: "flame-note" });
    this.box = element("div", { class: "flame", id: "flame", role: "group", "aria-label": "Bytes in use by call stack" });
    this.element = element("div", {}, this.box, this.note);
  }

  show(sums) {
    this.sums = sums;
    const { bytes } = sums;
    // What had the whole width has nothing at another moment.
    while (bytes[this.node] === 0 && this.node > 0) this.node = this.tree.parents[this.node];
    const rows = [];
    let left = 0;
    const put = (node, from, width, depth) => {
      (rows[depth] ??= []).push(this.frame(node, from, width, node !== this.node && depth <= this.tree.depths[this.node]));
      let next = from;
      for (const child of this.tree.below(node, sums)) {
        const part = (bytes[child] / bytes[this.node]) || 0;
        if (part < NARROWEST) left += bytes[child];
        else put(child, next, part, depth + 1);
        next += part;
      }
    };
    // The frames that called the chosen one are above it, as wide as it is.
    for (const above of [0, ...this.tree.pathTo(this.node)].slice(0, -1)) rows.push([this.frame(above, 0, 1, true)]);
    if (bytes[0] > 0) put(this.node, 0, 1, this.tree.depths[this.node]);
    this.box.replaceChildren(...rows.map(row => element("div", { class: "flame-row" }, row)));
    this.note.textContent = [
      bytes[0] > 0 ? "A click on a frame gives it the whole width; a click on one above it goes back." : "Nothing is in use.",
      left > 0 ? `Frames with ${bytesText(left)} are too narrow to be drawn: the tree shows them.` : "",
    ].join(" ").trim();
  }

  frame(node, from, width, isAbove) {
    const { bytes, counts } = this.sums;
    const name = this.tree.frames[node];
    const rows = [
      ["in use", bytesInFull(bytes[node])],
      ["of all", percentText(bytes[node] / bytes[0])],
      ["blocks", countText(counts[node])],
    ];
    const shown = element("button", {
      type: "button", class: isAbove ? "flame-frame above" : "flame-frame", "data-node": node, "data-bytes": bytes[node],
      "aria-label": `${name}: ${bytesText(bytes[node])}`,
      onclick: () => {
        this.node = node;
        tooltip.hide();
        this.show(this.sums);
        this.box.querySelector(`[data-node="${node}"]`)?.focus({ preventScroll: true });
      },
      onpointermove: event => tooltip.show(event.clientX, event.clientY, name, rows),
      onpointerleave: () => tooltip.hide(),
    }, name);
    shown.style.left = `${from * 100}%`;
    shown.style.width = `${width * 100}%`;
    shown.style.setProperty("--hue", node === 0 ? OTHERS[theme()] : HUES[theme()][hashOf(name) % HUES[theme()].length]);
    return shown;
  }
}
