// The map of the segments at a moment: a bar each, with all blocks at their offsets.

const BAR = { gap: 8, between: 4, rows: 9 };

class SegmentMap {
  /** `describe(segment, range)` is the title and the rows of a range's tooltip; bars are `tall` pixels high. */
  constructor(describe, tall = 24) {
    this.describe = describe;
    this.tall = tall;
    this.map = { segments: [], free: {} };
    this.bars = [];
    this.marked = null;
    /** Ranges with a frame around them, as { name, offset, bytes } with the name of the segment. */
    this.frames = [];
    this.canvas = element("canvas", {
      class: "map", tabindex: 0, role: "application", "aria-roledescription": "map", "aria-label": "The segments",
    });
    this.box = element("div", { class: "map-mark", hidden: true });
    this.spoken = element("p", { class: "spoken", "aria-live": "polite" });
    this.stage = element("div", { class: "stage" }, this.canvas, this.box, this.spoken);
    this.redraw = sharpCanvas(this.canvas, (pen, width) => this.draw(pen, width));
    this.canvas.addEventListener("pointermove", event => this.hover(event));
    this.canvas.addEventListener("pointerleave", () => this.leave());
    this.canvas.addEventListener("blur", () => this.leave());
    this.canvas.addEventListener("click", event => {
      const found = this.at(event);
      if (found) this.pick?.(found.bar.segment, found.bar.segment.ranges[found.place]);
    });
    this.canvas.addEventListener("keydown", event => this.press(event));
  }

  show(map) {
    this.map = map;
    const { segments, free } = map;
    const all = segments.reduce((sum, segment) => sum + segment.bytes, 0);
    this.canvas.setAttribute("aria-label",
      `${counted(segments.length, "segment")} of ${bytesText(all)} together, ${bytesText(free.bytes)} of it free`);
    this.layOut(this.canvas.clientWidth || 800);
    this.redraw();
  }

  /** Puts the largest segments first, and each in the first row that has room. */
  layOut(width) {
    this.leave();
    const segments = [...this.map.segments].sort((one, other) => other.bytes - one.bytes);
    const between = segments.length > 300 ? 0 : BAR.between;
    const all = segments.reduce((sum, segment) => sum + segment.bytes, 0);
    // A bit more than their bytes, for the gaps between them.
    const perRow = Math.max(segments[0]?.bytes ?? 1, (all / BAR.rows) * 1.02);
    const scale = (width - 1) / perRow;
    const rows = [];
    let open = 0;
    this.bars = segments.map(segment => {
      const wide = Math.max(1, segment.bytes * scale - between);
      // Rows after the first that this one does not fit into may be full for all that follow: these are no larger.
      while (open < rows.length && rows[open] + 1 > width) open++;
      let row = open;
      while (row < rows.length && rows[row] + wide > width + 0.5) row++;
      if (row === rows.length) rows.push(0);
      const left = rows[row];
      rows[row] += wide + between;
      return { segment, left, row, wide };
    });
    this.bars.sort((one, other) => one.row - other.row || one.left - other.left);
    this.canvas.style.height = `${Math.max(1, rows.length) * (this.tall + BAR.gap)}px`;
    this.width = width;
  }

  draw(pen, width) {
    if (width !== this.width) this.layOut(width);
    const fills = new Map();
    const fill = range => {
      const key = range.isWaiting ? "pending" : range.state === "active" ? range.series : range.state;
      if (!fills.has(key)) fills.set(key, typeof key === "number" ? fillOf(pen, key) : freeFill(pen, key));
      return fills.get(key);
    };
    const [edge, panel] = [ink("line-strong"), ink("panel")];
    for (const { segment, left, row, wide } of this.bars) {
      const top = row * (this.tall + BAR.gap);
      const scale = wide / segment.bytes;
      for (const range of segment.ranges) {
        const x = snapped(left + range.offset * scale);
        const w = snapped(left + (range.offset + range.bytes) * scale) - x;
        pen.globalAlpha = range.faded ? 0.15 : 1;
        pen.fillStyle = fill(range);
        pen.fillRect(x, top, Math.max(w, 0.5), this.tall);
        pen.globalAlpha = 1;
        if (w > 4) {
          pen.fillStyle = panel;
          pen.fillRect(x + w - 1, top, 1, this.tall);
        }
      }
      if (wide > 3) {
        pen.strokeStyle = edge;
        pen.lineWidth = 1;
        const [x, end] = [snapped(left), snapped(left + wide)];
        pen.strokeRect(x + 0.5, top + 0.5, end - x - 1, this.tall - 1);
      }
      pen.strokeStyle = ink("danger");
      pen.lineWidth = 3;
      for (const { offset, bytes } of this.frames.filter(({ name }) => name === segment.name)) {
        pen.strokeRect(left + offset * scale + 1.5, top + 1.5, Math.max(1, bytes * scale - 3), this.tall - 3);
      }
    }
  }

  /** The bar, and the index of the range in it, at a point of the canvas. */
  find(x, y) {
    const row = Math.floor(y / (this.tall + BAR.gap));
    if (y - row * (this.tall + BAR.gap) > this.tall) return null;
    const bar = this.bars.find(bar => bar.row === row && bar.left <= x && x < bar.left + bar.wide);
    if (!bar) return null;
    const offset = ((x - bar.left) / bar.wide) * bar.segment.bytes;
    const { ranges } = bar.segment;
    let [low, high] = [0, ranges.length];
    while (high - low > 1) {
      const middle = (low + high) >> 1;
      if (ranges[middle].offset <= offset) low = middle;
      else high = middle;
    }
    return { bar, place: low };
  }

  at(event) {
    const frame = this.canvas.getBoundingClientRect();
    return this.find(event.clientX - frame.left, event.clientY - frame.top);
  }

  hover(event) {
    const found = this.at(event);
    if (found) this.mark(found, event.clientX, event.clientY);
    else this.leave();
  }

  /** Frames a range, and describes it beside a point of the window. Returns the description. */
  mark({ bar, place }, x, y) {
    this.marked = { bar, place };
    const { left, wide, top } = this.frameOf(bar, place);
    this.box.hidden = false;
    this.box.style.left = `${left - 1}px`;
    this.box.style.width = `${Math.max(2, wide) + 1}px`;
    this.box.style.top = `${top - 1}px`;
    this.box.style.height = `${this.tall + 2}px`;
    const range = bar.segment.ranges[place];
    const { title, rows } = this.describe(bar.segment, range);
    tooltip.show(x, y, title, rows, range.state === "active" ? range.series : range.state);
    return { title, rows };
  }

  /** The position of a range in the picture. */
  frameOf(bar, place) {
    const { offset, bytes } = bar.segment.ranges[place];
    const scale = bar.wide / bar.segment.bytes;
    return { left: bar.left + offset * scale, wide: bytes * scale, top: bar.row * (this.tall + BAR.gap) };
  }

  press(event) {
    if (event.ctrlKey || event.metaKey || event.altKey || this.bars.length === 0) return;
    if (event.key === "Enter" && this.marked) {
      const { bar, place } = this.marked;
      this.pick?.(bar.segment, bar.segment.ranges[place]);
    } else {
      const next = this.next(event.key);
      if (!next) return;
      const { left, wide, top } = this.frameOf(next.bar, next.place);
      const stage = this.canvas.getBoundingClientRect();
      const { title, rows } = this.mark(next, stage.left + left + wide / 2, stage.top + top + this.tall);
      this.spoken.textContent = [title, ...rows.map(row => row.join(" "))].join(", ");
    }
    event.preventDefault();
  }

  /** The range that a key leads to from the marked one, in the order in which they are drawn. */
  next(key) {
    const first = { bar: this.bars[0], place: 0 };
    const end = bar => ({ bar, place: bar.segment.ranges.length - 1 });
    if (key === "Home") return first;
    if (key === "End") return end(this.bars.at(-1));
    if (!this.marked) return key.startsWith("Arrow") ? first : null;
    const { bar, place } = this.marked;
    const number = this.bars.indexOf(bar);
    if (key === "ArrowRight") {
      if (place + 1 < bar.segment.ranges.length) return { bar, place: place + 1 };
      return number + 1 < this.bars.length ? { bar: this.bars[number + 1], place: 0 } : this.marked;
    }
    if (key === "ArrowLeft") {
      if (place > 0) return { bar, place: place - 1 };
      return number > 0 ? end(this.bars[number - 1]) : this.marked;
    }
    if (key === "ArrowUp" || key === "ArrowDown") {
      const { left, wide, top } = this.frameOf(bar, place);
      const tall = this.tall + BAR.gap;
      return this.find(left + wide / 2, key === "ArrowUp" ? top - tall : top + tall) ?? this.marked;
    }
    return null;
  }

  leave() {
    this.marked = null;
    this.box.hidden = true;
    tooltip.hide();
  }
}

/** The map, and above it one segment as wide as there is room, once a click has picked it. */
class MapWithLens {
  /** `pickRange(range)` is called with each range that is clicked. */
  constructor(describe, pickRange = () => {}) {
    this.map = new SegmentMap(describe);
    this.lens = new SegmentMap(describe, 40);
    this.title = element("p", { class: "lens-title" });
    this.head = element("div", { class: "lens-head" }, this.title,
      element("button", { type: "button", class: "button small", onclick: () => this.pick(null) }, "Close"));
    this.frame = element("div", { class: "lens", hidden: true }, this.head, this.lens.stage);
    this.element = element("div", {}, this.frame, this.map.stage);
    this.map.pick = (segment, range) => {
      this.pick(segment.name === this.picked ? null : segment.name);
      pickRange(range);
    };
    this.lens.pick = (_, range) => pickRange(range);
  }

  /** Segments keep their names: the one that was picked stays so as long as it is there. */
  pick(name) {
    this.picked = name;
    this.showLens();
  }

  /** `frames` are ranges with a frame around them, as { name, offset, bytes } with the name of the segment. */
  show(map, frames = []) {
    this.map.frames = this.lens.frames = frames;
    this.map.show(map);
    this.showLens();
  }

  showLens() {
    const segment = this.map.map.segments.find(segment => segment.name === this.picked);
    this.frame.hidden = !segment;
    if (!segment) return;
    const used = segment.ranges.filter(({ state }) => state === "active");
    const bytes = used.reduce((sum, range) => sum + range.bytes, 0);
    this.title.textContent = `${segment.name}: ${bytesText(segment.bytes)}, of which ${bytesText(bytes)} ` +
      `are in use, in ${counted(used.length, "block")}`;
    this.lens.show({ segments: [segment], free: { bytes: segment.bytes - bytes } });
  }
}

/** The figures of free memory, as rows of a list. */
function freeRows(free) {
  const scattered = free.bytes > 0 ? (free.bytes - free.largest) / free.bytes : 0;
  return [
    ["largest free range", bytesText(free.largest), "largest-free"],
    ["free ranges", countText(free.ranges), "free-ranges"],
    ["outside the largest range", percentText(scattered), "scattered"],
  ];
}

/** A list of names and values. Each value has an id. */
function figures(rows) {
  return element("dl", { class: "figures" }, rows.map(([what, value, id]) =>
    element("div", {}, element("dt", {}, what), element("dd", { id }, value))));
}
