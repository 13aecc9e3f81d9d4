// Memory over time: stacked areas of groups, or blocks, the reserved bytes above them, and the moment when memory ran out.

const MARGIN = { left: 66, right: 14, top: 14, bottom: 28 };

class Timeline {
  constructor(program, state) {
    this.program = program;
    this.state = state;
    this.hovered = null;
    this.focused = null;
    /** The bytes at the top of the picture are at least these. */
    this.leastHigh = 0;
    /** The timeline whose bytes in use are a line over this picture, stretched to the same length; or null. */
    this.overlaid = null;
    this.picture = new BlockPicture(program);
    this.segmentPicture = new BlockPicture(new SegmentsAsBlocks(program));
    this.canvas = element("canvas", {
      class: "chart", tabindex: "0", role: "application", "aria-roledescription": "chart",
      "aria-label": "Memory over time. Plus and minus zoom, arrows move, comma and full stop go from event to event. Control and the wheel zoom.",
    });
    this.over = element("canvas", { class: "chart over", "aria-hidden": "true" });
    this.whole = element("canvas", { class: "whole", "aria-hidden": "true" });
    this.stage = element("div", { class: "stage" }, this.canvas, this.over);
    this.drawBase = sharpCanvas(this.canvas, (...size) => this.drawChart(...size));
    this.drawOver = sharpCanvas(this.over, (...size) => this.drawCross(...size));
    this.drawWhole = sharpCanvas(this.whole, (...size) => this.drawSilhouette(...size));
    this.redraw = once(() => {
      this.drawBase();
      this.drawOver();
      this.drawWhole();
    });
    this.recross = once(() => this.drawOver());
    this.listenToPointer();
    this.listenToWhole();
  }

  get clock() {
    const chosen = this.state.get("clock") ?? this.program.clock;
    return this.program.times && chosen === "time" ? "time" : "events";
  }

  /** Whether the bytes in use get the whole height: what is reserved is not only for the blocks that a filter leaves. */
  get hidesReserved() {
    return !this.showsSegments && (this.state.get("reserved") === "hidden" || this.program.mask !== null);
  }

  get showsBlocks() {
    return this.state.get("mode") === "blocks";
  }

  get showsSegments() {
    return this.state.get("mode") === "segments";
  }

  /** The block that a click has pinned. */
  get block() {
    const block = Number.parseInt(this.state.get("block"), 10);
    return block >= 0 && block < this.program.asked.length ? block : null;
  }

  /** The selected moments, from the first to the last; null for none. */
  get selection() {
    return selectionOf(this.state.get("selection"), this.program.moments);
  }

  /** The visible range of the axis. */
  get range() {
    const [low, high] = this.program.ends(this.clock);
    const [from, to] = (this.state.get("range") ?? "").split("~").map(Number);
    return from < to && to > low && from < high ? [Math.max(low, from), Math.min(high, to)] : [low, high];
  }

  setRange(from, to) {
    const [low, high] = this.program.ends(this.clock);
    const span = Math.min(high - low, Math.max(to - from, Math.min(4, high - low)));
    let start = (from + to - span) / 2;
    start = Math.max(low, Math.min(high - span, start));
    const round = place => Number(place.toPrecision(12));
    this.state.set("range", span >= high - low ? null : `${round(start)}~${round(start + span)}`);
  }

  /** Shows `factor` times as much of the axis, around a position that stays in place. */
  zoom(factor, around) {
    const [from, to] = this.range;
    const fixed = around ?? this.middle();
    this.setRange(fixed - (fixed - from) * factor, fixed + (to - fixed) * factor);
  }

  /** The pinned moment, if it is visible, or else the middle. */
  middle() {
    const [from, to] = this.range;
    const pinned = this.program.place(this.moment, this.clock);
    return from <= pinned && pinned <= to ? pinned : (from + to) / 2;
  }

  /** Moves by a part of the visible range. */
  pan(part) {
    const [from, to] = this.range;
    const [low, high] = this.program.ends(this.clock);
    const step = Math.max(low - from, Math.min(high - to, (to - from) * part));
    this.setRange(from + step, to + step);
  }

  get moment() {
    const moment = Number.parseInt(this.state.get("at"), 10);
    return moment >= 0 && moment <= this.program.moments ? moment : this.first;
  }

  /** The moment to look at first: where memory ran out, or the peak. */
  get first() {
    const { out_of_memory: failed, peak_active: peak } = this.program.numbers;
    return failed ? this.program.moments : peak.moment;
  }

  /** Pins a moment, and moves to it, or to another `place` in it. */
  pin(moment, place = null) {
    const pinned = Math.max(0, Math.min(this.program.moments, moment));
    this.state.set("at", pinned);
    const [from, to] = this.range;
    place ??= this.program.place(pinned, this.clock);
    if (place < from || place >= to) this.setRange(place - (to - from) / 2, place + (to - from) / 2);
  }

  /** Pins the moment in which a request failed when the program was recorded, and moves to that request. */
  pinShortage(shortage) {
    this.pin(shortage.moment, this.program.placeOfShortage(shortage, this.clock));
  }

  // Positions.

  get plotWidth() {
    return this.canvas.clientWidth - MARGIN.left - MARGIN.right;
  }

  placeAt(x) {
    const [from, to] = this.range;
    return from + ((x - MARGIN.left) / this.plotWidth) * (to - from);
  }

  xOf(place) {
    const [from, to] = this.range;
    return MARGIN.left + ((place - from) / (to - from)) * this.plotWidth;
  }

  /** For each column of pixels, the moment in it at which the most is active, and the most reserved bytes. */
  columns(width, from, to) {
    const { program, clock } = this;
    const moments = new Uint32Array(width);
    const reserved = new Float64Array(width);
    // The stack of segments is that of the moments.
    const isByTime = clock === "time" && program.reservedSteps !== null && !this.showsSegments;
    let moment = program.momentAt(from, clock);
    let start = from;
    for (let column = 0; column < width; column++) {
      const end = from + ((column + 1) / width) * (to - from);
      let last = column + 1 === width ? program.momentAt(to, clock) : program.momentAt(end, clock);
      if (last > moment && program.place(last, clock) >= end) last--;
      last = Math.max(last, moment);
      moments[column] = program.shownPeaks.between(moment, last);
      reserved[column] = isByTime ? program.reservedBetween(start, end) : program.reserved[program.reservedPeaks.between(moment, last)];
      moment = program.momentAt(end, clock);
      start = end;
    }
    return { moments, reserved };
  }

  /** As the moments of `columns`, but of the overlaid timeline, at the same parts of its length. */
  overlaidColumns(width, from, to) {
    const { overlaid } = this;
    const [low, high] = this.program.ends(this.clock);
    const [first, last] = overlaid.program.ends(overlaid.clock);
    const stretched = place => first + ((place - low) / (high - low)) * (last - first);
    return overlaid.columns(width, stretched(from), stretched(to)).moments;
  }

  // Drawing.

  drawChart(pen, width, height) {
    const plot = { left: MARGIN.left, top: MARGIN.top, width: this.plotWidth, height: height - MARGIN.top - MARGIN.bottom };
    const [from, to] = this.range;
    const count = Math.max(1, Math.round(plot.width));
    const { moments, reserved } = this.columns(count, from, to);
    const { numbers } = this.program;
    const hides = this.hidesReserved;
    const shown = column => (hides ? this.program.shown[moments[column]] : reserved[column]);
    const most = reserved.reduce((most, _, column) => Math.max(most, shown(column)), 1);
    const capacity = numbers.capacity_bytes;
    const showsCapacity = !hides && capacity > 0 && (Boolean(numbers.out_of_memory) || capacity <= most * 1.3);
    this.high = Math.max(most * 1.06, showsCapacity ? capacity * 1.04 : 0, this.leastHigh);
    // On whole pixels, so that edges are sharp.
    const y = bytes => snapped(plot.top + plot.height * (1 - bytes / this.high));
    const x = column => snapped(plot.left + (column / count) * plot.width);

    this.drawAxes(pen, plot, y, from, to);
    if (!hides) this.drawReserved(pen, reserved, x, y, plot, true);
    if (this.showsBlocks) {
      const faded = series => this.focused !== null && this.focused !== series;
      this.picture.draw(pen, moments, plot, this.high, faded, this.block);
    } else if (this.showsSegments) {
      this.segmentPicture.draw(pen, moments, plot, this.high, () => false, null);
    } else {
      this.drawStack(pen, moments, x, y);
    }
    if (!hides) this.drawReserved(pen, reserved, x, y, plot, false);
    if (this.overlaid) this.drawOverlaid(pen, this.overlaidColumns(count, from, to), x, y);
    if (showsCapacity) this.drawCapacity(pen, plot, Math.round(y(capacity)), capacity);
    this.drawMarks(pen, plot);
    pen.strokeStyle = ink("line-strong");
    pen.lineWidth = 1;
    pen.strokeRect(plot.left - 0.5, plot.top - 0.5, plot.width + 1, plot.height + 1);
  }

  drawAxes(pen, plot, y, from, to) {
    pen.font = "12px system-ui, sans-serif";
    pen.textBaseline = "middle";
    pen.textAlign = "right";
    pen.lineWidth = 1;
    for (const { at, text } of bytesTicks(this.high, Math.max(2, plot.height / 55))) {
      const line = Math.round(y(at)) + 0.5;
      pen.strokeStyle = ink("line");
      pen.beginPath();
      pen.moveTo(plot.left, line);
      pen.lineTo(plot.left + plot.width, line);
      pen.stroke();
      pen.fillStyle = ink("soft");
      pen.fillText(text, plot.left - 8, line);
    }
    pen.textBaseline = "top";
    pen.textAlign = "center";
    for (const { at, text } of this.axisTicks(from, to, plot.width / 110)) {
      const line = Math.round(this.xOf(at)) + 0.5;
      pen.strokeStyle = ink("line-strong");
      pen.beginPath();
      pen.moveTo(line, plot.top + plot.height);
      pen.lineTo(line, plot.top + plot.height + 5);
      pen.stroke();
      const half = pen.measureText(text).width / 2;
      pen.fillStyle = ink("soft");
      pen.fillText(text, Math.min(line, plot.left + plot.width + MARGIN.right - half), plot.top + plot.height + 9);
    }
  }

  axisTicks(from, to, most) {
    if (this.clock !== "time") {
      const { places } = ticks(from, to, most);
      return places.filter(Number.isInteger).map(at => ({ at, text: countText(at) }));
    }
    return timeTicks(from, to, most);
  }

  drawStack(pen, moments, x, y) {
    const { program } = this;
    const count = moments.length;
    const layers = SERIES + 1;
    const tops = Array.from({ length: layers + 1 }, () => new Float64Array(count));
    for (let column = 0; column < count; column++) {
      if (column > 0 && moments[column] === moments[column - 1]) {
        for (const top of tops) top[column] = top[column - 1];
        continue;
      }
      const stack = program.stackAt(moments[column]);
      let sum = 0;
      for (let layer = 0; layer < layers; layer++) tops[layer + 1][column] = sum += stack[layer];
    }
    for (let layer = 0; layer < layers; layer++) {
      const [below, above] = [tops[layer], tops[layer + 1]];
      pen.beginPath();
      pen.moveTo(x(0), y(below[0]));
      for (let column = 0; column < count; column++) {
        pen.lineTo(x(column), y(above[column]));
        pen.lineTo(x(column + 1), y(above[column]));
      }
      for (let column = count - 1; column >= 0; column--) {
        pen.lineTo(x(column + 1), y(below[column]));
        pen.lineTo(x(column), y(below[column]));
      }
      pen.closePath();
      pen.globalAlpha = this.focused === null || this.focused === layer ? 1 : 0.22;
      pen.fillStyle = fillOf(pen, layer);
      pen.fill();
    }
    pen.globalAlpha = 1;
  }

  drawReserved(pen, reserved, x, y, plot, ground) {
    pen.beginPath();
    for (let column = 0; column < reserved.length; column++) {
      const top = y(reserved[column]);
      if (column === 0) pen.moveTo(x(0), top);
      pen.lineTo(x(column), top);
      pen.lineTo(x(column + 1), top);
    }
    if (ground) {
      pen.lineTo(plot.left + plot.width, plot.top + plot.height);
      pen.lineTo(plot.left, plot.top + plot.height);
      pen.closePath();
      pen.fillStyle = freeFill(pen, "held");
      pen.fill();
    } else {
      pen.strokeStyle = ink("reserved");
      pen.lineWidth = 1.75;
      pen.stroke();
    }
  }

  drawOverlaid(pen, moments, x, y) {
    pen.beginPath();
    moments.forEach((moment, column) => {
      const top = y(this.overlaid.program.active[moment]);
      pen.lineTo(x(column), top);
      pen.lineTo(x(column + 1), top);
    });
    // With an edge of its own, so that it is seen on any colour.
    for (const [color, width] of [["panel", 4.5], ["accent", 2]]) {
      pen.strokeStyle = ink(color);
      pen.lineWidth = width;
      pen.stroke();
    }
  }

  drawCapacity(pen, plot, line, capacity) {
    pen.save();
    pen.strokeStyle = ink("danger");
    pen.setLineDash([6, 4]);
    pen.lineWidth = 2;
    pen.beginPath();
    pen.moveTo(plot.left, line);
    pen.lineTo(plot.left + plot.width, line);
    pen.stroke();
    pen.restore();
    labelOn(pen, `capacity ${bytesText(capacity)}`, plot.left + 8, line, ink("danger"), "left");
  }

  drawMarks(pen, plot) {
    const { numbers, moments } = this.program;
    const marks = numbers.shortages.map(shortage => [this.program.placeOfShortage(shortage, this.clock), "recorded failure"]);
    if (numbers.out_of_memory) marks.push([this.program.place(moments, this.clock), "out of memory"]);
    let free = -Infinity;
    for (const [along, text] of marks) {
      const place = Math.round(this.xOf(along));
      if (place < plot.left - 1 || place > plot.left + plot.width + 1) continue;
      pen.strokeStyle = pen.fillStyle = ink("danger");
      pen.lineWidth = 2;
      pen.beginPath();
      pen.moveTo(place, plot.top);
      pen.lineTo(place, plot.top + plot.height);
      pen.stroke();
      pen.beginPath();
      pen.moveTo(place - 6, plot.top);
      pen.lineTo(place + 6, plot.top);
      pen.lineTo(place, plot.top + 9);
      pen.fill();
      if (place < free) continue;
      const right = place + 130 < plot.left + plot.width;
      labelOn(pen, text, right ? place + 9 : place - 9, plot.top + plot.height - 16, ink("danger"), right ? "left" : "right");
      free = place + 130;
    }
  }

  drawCross(pen, width, height) {
    const bottom = height - MARGIN.bottom;
    const line = (moment, color, dash) => {
      const middle = this.clock === "events" ? 0.5 : 0;
      const x = this.xOf(this.program.place(moment, this.clock) + middle);
      if (x < MARGIN.left - 1 || x > width - MARGIN.right + 1) return null;
      pen.save();
      pen.strokeStyle = color;
      pen.lineWidth = 1.5;
      pen.setLineDash(dash);
      pen.beginPath();
      pen.moveTo(x, MARGIN.top);
      pen.lineTo(x, bottom);
      pen.stroke();
      pen.restore();
      return x;
    };
    const x = line(this.moment, ink("accent"), []);
    if (x !== null) {
      pen.fillStyle = ink("accent");
      pen.beginPath();
      pen.arc(x, MARGIN.top, 4.5, 0, 7);
      pen.fill();
    }
    if (this.hovered !== null && this.hovered !== this.moment) line(this.hovered, ink("soft"), [4, 3]);
    if (this.showsBlocks) this.drawOutline(pen, width);
    this.drawSelection(pen, width, bottom);
  }

  drawSelection(pen, width, bottom) {
    const { selection } = this;
    if (!selection) return;
    const last = this.clock === "events" ? 1 : 0;
    const [from, to] = selection.map((moment, end) => {
      const x = this.xOf(this.program.place(moment, this.clock) + end * last);
      return Math.max(MARGIN.left, Math.min(width - MARGIN.right, x));
    });
    pen.fillStyle = ink("accent-soft");
    pen.fillRect(from, MARGIN.top, to - from, bottom - MARGIN.top);
    pen.fillStyle = ink("accent");
    pen.fillRect(from, bottom - 3, to - from, 3);
  }

  /** A frame around the pinned block, in the columns in which it is in use. */
  drawOutline(pen, width) {
    const { outline } = this.picture;
    const columns = this.picture.canvas.width;
    const x = column => MARGIN.left + (column / columns) * (width - MARGIN.left - MARGIN.right);
    pen.strokeStyle = ink("ink");
    pen.lineWidth = 2;
    pen.beginPath();
    outline.forEach(([column, top, bottom], place) => {
      const [before, next] = [outline[place - 1], outline[place + 1]];
      for (const edge of [top, bottom]) {
        pen.moveTo(x(column), MARGIN.top + edge);
        pen.lineTo(x(column + 1), MARGIN.top + edge);
      }
      for (const [beside, side] of [[before, column], [next, column + 1]]) {
        if (beside && Math.abs(beside[0] - column) === 1) continue;
        pen.moveTo(x(side), MARGIN.top + top);
        pen.lineTo(x(side), MARGIN.top + bottom);
      }
    });
    pen.stroke();
  }

  drawSilhouette(pen, width, height) {
    const plot = { left: MARGIN.left, width: width - MARGIN.left - MARGIN.right };
    const [low, high] = this.program.ends(this.clock);
    const count = Math.max(1, Math.round(plot.width));
    const { moments, reserved } = this.columns(count, low, high);
    const most = reserved.reduce((most, bytes) => Math.max(most, bytes), 1);
    const bars = (bytes, color) => {
      pen.fillStyle = color;
      for (let column = 0; column < count; column++) {
        const top = snapped(height - (bytes(column) / most) * (height - 2));
        const [left, right] = [column, column + 1].map(edge => snapped(plot.left + (edge / count) * plot.width));
        pen.fillRect(left, top, right - left, height - top);
      }
    };
    bars(column => reserved[column], ink("whole-reserved"));
    bars(column => this.program.shown[moments[column]], ink("whole-active"));
    const [from, to] = this.range.map(place => plot.left + ((place - low) / (high - low)) * plot.width);
    pen.fillStyle = ink("veil");
    pen.fillRect(plot.left, 0, from - plot.left, height);
    pen.fillRect(to, 0, plot.left + plot.width - to, height);
    pen.strokeStyle = ink("accent");
    pen.lineWidth = 1.5;
    pen.strokeRect(from + 0.75, 0.75, Math.max(2, to - from - 1.5), height - 1.5);
  }

  // The pointer.

  listenToPointer() {
    const { canvas } = this;
    let down = null;
    const xOf = event => event.clientX - canvas.getBoundingClientRect().left;
    canvas.addEventListener("wheel", event => {
      const isSideways = event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY);
      // By itself the wheel scrolls the page.
      if (!event.ctrlKey && !event.metaKey && !isSideways) return;
      event.preventDefault();
      const lines = event.deltaMode === 1 ? 16 : 1;
      const sideways = event.deltaX || event.deltaY;
      if (isSideways) this.pan((sideways * lines) / 1000);
      else this.zoom(1.0018 ** (event.deltaY * lines), this.placeAt(xOf(event)));
    }, { passive: false });
    canvas.addEventListener("pointerdown", event => {
      if (event.button !== 0) return;
      canvas.setPointerCapture?.(event.pointerId);
      down = { x: xOf(event), range: this.range, moved: false, selects: event.shiftKey };
    });
    canvas.addEventListener("pointermove", event => {
      const x = xOf(event);
      if (down && Math.abs(x - down.x) > 3) down.moved = true;
      if (down?.moved && down.selects) {
        const [from, to] = [down.x, x].map(x => this.program.momentAt(this.placeAt(x), this.clock)).sort((one, other) => one - other);
        this.state.set("selection", from < to ? `${from}~${to}` : null);
      } else if (down?.moved) {
        const [from, to] = down.range;
        const [low, high] = this.program.ends(this.clock);
        const moved = ((down.x - x) / this.plotWidth) * (to - from);
        const step = Math.max(low - from, Math.min(high - to, moved));
        this.setRange(from + step, to + step);
      }
      this.hover(event, x);
    });
    canvas.addEventListener("pointerup", event => {
      if (down && !down.moved) this.pick(event, xOf(event));
      down = null;
      this.recross();
    });
    canvas.addEventListener("pointercancel", () => (down = null));
    canvas.addEventListener("pointerleave", () => {
      this.hovered = null;
      tooltip.hide();
      this.recross();
    });
    canvas.addEventListener("dblclick", () => this.state.set("range", null));
  }

  /** The bytes above the ground at the pointer; `null` beside the picture. */
  bytesUnder(event, x) {
    const box = this.canvas.getBoundingClientRect();
    const y = event.clientY - box.top;
    const inside = x >= MARGIN.left && x <= box.width - MARGIN.right && y >= MARGIN.top && y <= box.height - MARGIN.bottom;
    return inside ? (1 - (y - MARGIN.top) / (box.height - MARGIN.top - MARGIN.bottom)) * this.high : null;
  }

  /** Pins the moment under the pointer, and the block, where blocks are shown, or the one that a segment was taken for. */
  pick(event, x) {
    const bytes = this.bytesUnder(event, x);
    let block = null;
    if (this.showsBlocks && bytes !== null) block = this.picture.at(this.momentUnder(x), bytes);
    if (this.showsSegments && bytes !== null) {
      const segment = this.segmentPicture.at(this.momentUnder(x), bytes);
      block = segment === null ? null : this.program.blockOfSegment(segment);
    }
    if (block === null) return this.pin(this.program.momentAt(this.placeAt(x), this.clock));
    this.state.set("block", block);
    return this.pin(this.momentUnder(x));
  }

  hover(event, x) {
    const bytes = this.bytesUnder(event, x);
    const under = bytes === null ? null : this.under(x);
    this.hovered = under?.moment ?? null;
    if (bytes === null) tooltip.hide();
    else this.tell(event, bytes, under);
    this.recross();
  }

  /** The moment that the column of pixels under `x` shows, what is reserved there, and what is in use in the overlaid timeline. */
  under(x) {
    const column = [x, x + 1].map(x => this.placeAt(Math.floor(x)));
    const { moments, reserved } = this.columns(1, ...column);
    const overlaid = this.overlaid && this.overlaid.program.active[this.overlaidColumns(1, ...column)[0]];
    return { moment: moments[0], reserved: reserved[0], overlaid };
  }

  momentUnder(x) {
    return this.under(x).moment;
  }

  tell(event, bytes, { reserved, overlaid }) {
    const { program } = this;
    const moment = this.hovered;
    const rows = [
      ["in use", bytesText(program.active[moment])],
      ["reserved", bytesText(reserved)],
    ];
    if (overlaid !== null) rows.push(["in use in the second", bytesText(overlaid)]);
    if (this.showsBlocks && bytes <= program.shown[moment]) return this.tellBlock(event, moment, bytes);
    if (this.showsSegments && bytes <= program.reserved[moment]) return this.tellSegment(event, moment, bytes);
    const stack = program.stackAt(moment);
    let series = 0;
    let sum = stack[0];
    while (series < SERIES && sum < bytes) sum += stack[++series];
    const isInStack = bytes <= program.shown[moment];
    if (isInStack) rows.unshift([program.seriesName(series), bytesText(stack[series])]);
    else if (!this.hidesReserved && bytes <= reserved) rows.unshift(["held, free", bytesText(reserved - program.active[moment])]);
    tooltip.show(event.clientX, event.clientY, program.momentText(moment, this.clock), rows, isInStack ? series : undefined);
  }

  tellBlock(event, moment, bytes) {
    const { program, picture } = this;
    const block = picture.at(moment, bytes);
    if (block !== null) {
      const series = program.seriesOf[program.numberOf[block]];
      tooltip.show(event.clientX, event.clientY, `block ${countText(block + 1)}`, program.lifeOf(block, moment), series);
    } else {
      tooltip.show(event.clientX, event.clientY, "blocks too small to be drawn one by one", [
        ["together", bytesText(picture.restAt(moment))], ["each less than", bytesText(Math.ceil(picture.least))],
      ], "free");
    }
  }

  tellSegment(event, moment, bytes) {
    const { program, segmentPicture: picture } = this;
    const segment = picture.at(moment, bytes);
    if (segment === null) {
      tooltip.show(event.clientX, event.clientY, "segments too small to be drawn one by one", [["together", bytesText(picture.restAt(moment))]], "free");
      return;
    }
    tooltip.show(event.clientX, event.clientY, `segment ${countText(segment + 1)}`, program.segmentRows(segment));
  }

  listenToWhole() {
    const { whole } = this;
    const move = event => {
      if (event.buttons !== 1) return;
      const [low, high] = this.program.ends(this.clock);
      const [from, to] = this.range;
      const x = event.clientX - whole.getBoundingClientRect().left - MARGIN.left;
      const middle = low + (x / (whole.clientWidth - MARGIN.left - MARGIN.right)) * (high - low);
      const start = Math.max(low, Math.min(high - (to - from), middle - (to - from) / 2));
      this.setRange(start, start + (to - from));
    };
    whole.addEventListener("pointerdown", event => {
      whole.setPointerCapture?.(event.pointerId);
      move(event);
    });
    whole.addEventListener("pointermove", move);
  }
}

/** The nearest edge of a pixel. */
function snapped(place) {
  const ratio = window.devicePixelRatio || 1;
  return Math.round(place * ratio) / ratio;
}

/** Text on a ground of its own, so that it is legible on any picture. */
function labelOn(pen, text, x, y, color, align) {
  pen.font = "600 12px system-ui, sans-serif";
  pen.textBaseline = "middle";
  const width = pen.measureText(text).width + 10;
  const left = align === "right" ? x - width : x;
  pen.fillStyle = ink("panel");
  pen.globalAlpha = 0.9;
  pen.beginPath();
  pen.roundRect(left, y - 10, width, 20, 4);
  pen.fill();
  pen.globalAlpha = 1;
  pen.fillStyle = color;
  pen.textAlign = "left";
  pen.fillText(text, left + 5, y + 0.5);
}
