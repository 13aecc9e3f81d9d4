// The segments at a moment: a bar each, with all blocks in their places.

const BAR = { tall: 24, gap: 8, between: 4, rows: 9 };

class SegmentMap {
  /** `describe(segment, range)` is the title and the rows of a range's tooltip. */
  constructor(describe) {
    this.describe = describe;
    this.map = { segments: [], free: {} };
    this.bars = [];
    this.canvas = element("canvas", { class: "map", role: "img", "aria-label": "The segments" });
    this.box = element("div", { class: "map-mark", hidden: true });
    this.stage = element("div", { class: "stage" }, this.canvas, this.box);
    this.redraw = sharpCanvas(this.canvas, (pen, width) => this.draw(pen, width));
    this.canvas.addEventListener("pointermove", event => this.hover(event));
    this.canvas.addEventListener("pointerleave", () => this.leave());
  }

  show(map) {
    this.map = map;
    this.leave();
    const { segments, free } = map;
    const all = segments.reduce((sum, segment) => sum + segment.bytes, 0);
    this.canvas.setAttribute("aria-label",
      `${counted(segments.length, "segment")} of ${bytesText(all)} together, ${bytesText(free.bytes)} of it free`);
    this.layOut(this.canvas.clientWidth || 800);
    this.redraw();
  }

  /** Puts the largest segments first, and each in the first row that has room. */
  layOut(width) {
    const segments = [...this.map.segments].sort((one, other) => other.bytes - one.bytes);
    const between = segments.length > 300 ? 0 : BAR.between;
    const all = segments.reduce((sum, segment) => sum + segment.bytes, 0);
    const perRow = Math.max(segments[0]?.bytes ?? 1, all / BAR.rows);
    const scale = (width - 1) / perRow;
    const rows = [];
    let open = 0;
    this.bars = segments.map(segment => {
      const wide = Math.max(1, segment.bytes * scale - between);
      // Rows behind the first that this one does not fit into may be full for all that follow: these are no larger.
      while (open < rows.length && rows[open] + 1 > width) open++;
      let row = open;
      while (row < rows.length && rows[row] + wide > width + 0.5) row++;
      if (row === rows.length) rows.push(0);
      const left = rows[row];
      rows[row] += wide + between;
      return { segment, left, row, wide };
    });
    this.canvas.style.height = `${Math.max(1, rows.length) * (BAR.tall + BAR.gap)}px`;
    this.width = width;
  }

  draw(pen, width) {
    if (width !== this.width) this.layOut(width);
    const fills = new Map();
    const fill = range => {
      const key = range.state === "active" ? range.series : range.state;
      if (!fills.has(key)) fills.set(key, range.state === "active" ? fillOf(pen, key) : freeFill(pen, key));
      return fills.get(key);
    };
    const [edge, panel] = [ink("line-strong"), ink("panel")];
    for (const { segment, left, row, wide } of this.bars) {
      const top = row * (BAR.tall + BAR.gap);
      const scale = wide / segment.bytes;
      for (const range of segment.ranges) {
        const [x, w] = [left + range.offset * scale, range.bytes * scale];
        pen.fillStyle = fill(range);
        pen.fillRect(x, top, Math.max(w, 0.4), BAR.tall);
        if (w > 4) {
          pen.fillStyle = panel;
          pen.fillRect(x + w - 1, top, 1, BAR.tall);
        }
      }
      if (wide > 3) {
        pen.strokeStyle = edge;
        pen.lineWidth = 1;
        pen.strokeRect(left + 0.5, top + 0.5, wide - 1, BAR.tall - 1);
      }
    }
  }

  /** The bar and the range at a point of the canvas. */
  find(x, y) {
    const row = Math.floor(y / (BAR.tall + BAR.gap));
    if (y - row * (BAR.tall + BAR.gap) > BAR.tall) return null;
    const bar = this.bars.find(bar => bar.row === row && bar.left <= x && x < bar.left + bar.wide);
    if (!bar) return null;
    const scale = bar.wide / bar.segment.bytes;
    const offset = (x - bar.left) / scale;
    const { ranges } = bar.segment;
    let [low, high] = [0, ranges.length];
    while (high - low > 1) {
      const middle = (low + high) >> 1;
      if (ranges[middle].offset <= offset) low = middle;
      else high = middle;
    }
    return { bar, scale, range: ranges[low] };
  }

  hover(event) {
    const frame = this.canvas.getBoundingClientRect();
    const found = this.find(event.clientX - frame.left, event.clientY - frame.top);
    if (!found) {
      this.leave();
      return;
    }
    const { bar, scale, range } = found;
    this.box.hidden = false;
    this.box.style.left = `${bar.left + range.offset * scale - 1}px`;
    this.box.style.width = `${Math.max(2, range.bytes * scale) + 1}px`;
    this.box.style.top = `${bar.row * (BAR.tall + BAR.gap) - 1}px`;
    this.box.style.height = `${BAR.tall + 2}px`;
    const { title, rows } = this.describe(bar.segment, range);
    tooltip.show(event.clientX, event.clientY, title, rows, range.state === "active" ? range.series : range.state);
  }

  leave() {
    this.box.hidden = true;
    tooltip.hide();
  }
}

/** What free memory comes to, as rows of a list. */
function freeRows(free) {
  const scattered = free.bytes > 0 ? (free.bytes - free.largest) / free.bytes : 0;
  return [
    ["largest free range", bytesText(free.largest), "largest-free"],
    ["free ranges", countText(free.ranges), "free-ranges"],
    ["not in the largest", percentText(scattered), "scattered"],
  ];
}

/** A list of what and how much, each with an id for its value. */
function figures(rows) {
  return element("dl", { class: "figures" }, rows.map(([what, value, id]) =>
    element("div", {}, element("dt", {}, what), element("dd", { id }, value))));
}
