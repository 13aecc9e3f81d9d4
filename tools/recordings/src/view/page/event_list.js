// The list of all events. Only the rows in sight are elements, however many there are.

const ROW_HEIGHT = 26;
/** Browsers limit the height of an element; above this, the bar scrolls over several rows at once. */
const MOST_HEIGHT = 8e6;

const KINDS = ["allocated", "freed", "segment taken", "segment given back", "pool", "failed when recorded", "out of memory"];
const [ALLOCATED, FREED, TAKEN, GIVEN_BACK, POOL, FAILED, OUT] = KINDS.keys();
const CHOICES = [
  ["all", "All events", KINDS.map((_, kind) => kind)], ["allocated", "Allocations", [ALLOCATED]], ["freed", "Frees", [FREED]],
  ["segments", "Segments", [TAKEN, GIVEN_BACK]],
  ["pool", "What the pool did", [POOL]], ["failed", "Failures", [FAILED, OUT]],
];

/** What the pool did that the rows of segments say already. */
const POOLS_SEGMENTS = ["taken", "given back"];

class EventList {
  /** `pick(moment, block)` is called with the moment of a row that is clicked, and its block or null. */
  constructor(program, pick) {
    this.program = program;
    this.pick = pick;
    this.moment = 0;
    this.kinds = CHOICES[0][2];
    this.filter = null;
    this.collect();
    this.rows = null;
    this.body = element("div", { class: "event-rows" });
    this.space = element("div", { class: "event-space" }, this.body);
    this.view = element("div", { class: "events", id: "events-view", tabindex: "0", role: "listbox", "aria-label": "Events" }, this.space);
    this.select = element("select", { id: "event-kinds", "aria-label": "Which events", onchange: () => {
      this.kinds = CHOICES.find(([name]) => name === this.select.value)[2];
      this.show(this.filter);
    } }, CHOICES.map(([name, text]) => element("option", { value: name }, text)));
    this.count = element("span", { id: "event-count", "aria-live": "polite" });
    const titles = ["Event", "Time", "What", "Size", "Name", "Stream", "Lifetime"];
    this.element = element("div", {},
      element("div", { class: "event event-titles", "aria-hidden": "true" }, titles.map(title => element("span", {}, title))), this.view);
    this.draw = once(() => this.drawRows());
    this.view.addEventListener("scroll", this.draw);
    this.view.addEventListener("keydown", event => this.press(event));
    new ResizeObserver(this.draw).observe(this.view);
  }

  /** All rows: the moment of each, its kind, and the number of its block, segment or failure. */
  collect() {
    const { program } = this;
    const { block, segmentFrom, segmentTo, numbers } = program;
    const more = [];
    segmentFrom.forEach((from, segment) => more.push([from + 1, 0, TAKEN, segment]));
    segmentTo.forEach((to, segment) => {
      if (to === NEVER) return;
      const after = program.givenBackAfter.get(segment);
      // A recording says after which event it was.
      more.push(after === undefined ? [to + 1, 0, GIVEN_BACK, segment] : [after, 1, GIVEN_BACK, segment, program.givenBackAt[segment]]);
    });
    // The recording tells what the pool did beside that: misses, trims, flushes, waits.
    numbers.pool_events.forEach(({ moment, what, time_ns: time }, place) => POOLS_SEGMENTS.includes(what) || more.push([moment, 1, POOL, place, time]));
    // What failed when it was recorded comes after the event at whose moment it did, and among what the pool did then, by its time.
    numbers.shortages.forEach(({ moment, time_ns: time }, failure) => more.push([moment, 1, FAILED, failure, time]));
    if (numbers.out_of_memory) more.push([program.moments, 2, OUT, 0]);
    more.sort(([one, first, kind, , early], [other, second, another, , late]) =>
      one - other || first - second || (early || 0) - (late || 0) || kind - another);
    const count = block.length + more.length;
    this.moments = new Uint32Array(count);
    this.kind = new Uint8Array(count);
    this.number = new Uint32Array(count);
    let row = 0;
    let next = 0;
    const put = (moment, kind, number) => {
      this.moments[row] = moment;
      this.kind[row] = kind;
      this.number[row++] = number;
    };
    const putMore = (moment, order) => {
      for (; next < more.length; next++) {
        const [at, place, kind, number] = more[next];
        if (at > moment || (at === moment && place > order)) return;
        put(at, kind, number);
      }
    };
    for (let event = 0; event < block.length; event++) {
      putMore(event + 1, 0);
      if (block[event] >= 0) put(event + 1, ALLOCATED, block[event]);
      else put(event + 1, FREED, ~block[event]);
    }
    putMore(Infinity, 2);
  }

  /** Lists the events of the blocks in the program's mask, and of the failures that `filter` leaves; all without a filter. */
  show(filter) {
    this.filter = filter;
    const { program } = this;
    const wanted = new Uint8Array(KINDS.length);
    for (const kind of this.kinds) wanted[kind] = 1;
    const rows = new Uint32Array(this.kind.length);
    let count = 0;
    for (let row = 0; row < this.kind.length; row++) {
      const kind = this.kind[row];
      if (!wanted[kind]) continue;
      const fits = kind <= FREED ? !program.mask || program.mask[this.number[row]]
        : !program.mask || (kind >= POOL && filter !== null && filter.test(this.subject(row)));
      if (fits) rows[count++] = row;
    }
    this.rows = rows.subarray(0, count);
    this.count.textContent = count === this.kind.length ? counted(count, "event") : `${countText(count)} of ${counted(this.kind.length, "event")}`;
    this.space.style.height = `${Math.min(MOST_HEIGHT, count * ROW_HEIGHT)}px`;
    this.reveal();
    this.draw();
  }

  /** What a filter is told of a failure, or of what the pool did. */
  subject(row) {
    const { shortages, out_of_memory: failed, pool_events: pool } = this.program.numbers;
    const unknown = { stack: NO_FRAMES, life: null, age: null };
    if (this.kind[row] === POOL) {
      const { what, bytes, text } = pool[this.number[row]];
      return { name: `${what} ${text}`.trim(), bytes, stream: null, ...unknown };
    }
    const { group, bytes, requested_bytes: requested, stream } = this.kind[row] === OUT ? failed : shortages[this.number[row]];
    return { name: group ?? "", bytes: bytes ?? requested, stream, ...unknown };
  }

  /** The place in the list of the last row up to a moment. */
  placeOf(moment) {
    let [low, high] = [0, this.rows.length];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.moments[this.rows[middle]] <= moment) low = middle + 1;
      else high = middle;
    }
    return Math.max(0, low - 1);
  }

  pin(moment) {
    this.moment = moment;
    this.reveal();
    this.draw();
  }

  get inSight() {
    return Math.max(1, Math.floor(this.view.clientHeight / ROW_HEIGHT));
  }

  /** The place of the first row in sight. */
  get first() {
    const rest = this.space.clientHeight - this.view.clientHeight;
    if (rest <= 0) return 0;
    return Math.round((this.view.scrollTop / rest) * Math.max(0, this.rows.length - this.inSight));
  }

  /** Scrolls to the pinned moment, unless it is in sight. */
  reveal() {
    const place = this.placeOf(this.moment);
    const { first, inSight } = this;
    if (place >= first && place < first + inSight) return;
    const top = Math.max(0, place - Math.floor(inSight / 2));
    const rest = this.space.clientHeight - this.view.clientHeight;
    this.view.scrollTop = (top / Math.max(1, this.rows.length - inSight)) * rest;
  }

  press(event) {
    const step = { ArrowDown: 1, ArrowUp: -1, PageDown: this.inSight, PageUp: -this.inSight, Home: -Infinity, End: Infinity }[event.key];
    if (!step || event.ctrlKey || event.metaKey || event.altKey || this.rows.length === 0) return;
    event.preventDefault();
    event.stopPropagation();
    const place = Math.max(0, Math.min(this.rows.length - 1, this.placeOf(this.moment) + step));
    this.pickRow(this.rows[place]);
  }

  pickRow(row) {
    this.pick(this.moments[row], this.kind[row] <= FREED ? this.number[row] : null);
  }

  drawRows() {
    const { first } = this;
    const pinned = this.rows.length > 0 ? this.rows[this.placeOf(this.moment)] : -1;
    const rows = [...this.rows.subarray(first, first + this.inSight + 1)];
    this.body.style.transform = `translateY(${this.view.scrollTop}px)`;
    this.body.replaceChildren(...rows.map(row => element("div", {
      class: "event", role: "option", "data-moment": this.moments[row], "data-kind": KINDS[this.kind[row]],
      "aria-selected": String(row === pinned && this.moments[row] === this.moment), onclick: () => this.pickRow(row),
    }, this.cells(row).map(cell => nameText(cell)))));
  }

  /** The time of a row, in nanoseconds: its own, or that of its event; null if it has no time. */
  timeOf(row) {
    const { program } = this;
    const { shortages, pool_events: pool } = program.numbers;
    const [moment, number] = [this.moments[row], this.number[row]];
    if (this.kind[row] === POOL) return pool[number].time_ns;
    if (this.kind[row] === FAILED) return shortages[number].time_ns;
    const own = this.kind[row] === TAKEN ? program.takenAt[number] : this.kind[row] === GIVEN_BACK ? program.givenBackAt[number] : NaN;
    if (!Number.isNaN(own)) return own;
    return program.times && moment > 0 ? program.place(moment, "time") : null;
  }

  cells(row) {
    const { program } = this;
    const [moment, kind, number] = [this.moments[row], this.kind[row], this.number[row]];
    const at = this.timeOf(row);
    const time = at === null ? "" : timeText(at, 2);
    const what = [countText(moment), time, KINDS[kind]];
    if (kind === TAKEN || kind === GIVEN_BACK) return [...what, bytesText(program.segmentBytes[number]), `segment ${number + 1}`, "", ""];
    if (kind === POOL) {
      const { what, bytes, text } = program.numbers.pool_events[number];
      return [countText(moment), time, what, bytesText(bytes), text, "", ""];
    }
    if (kind >= FAILED) {
      const { name, bytes, stream } = this.subject(row);
      return [...what, bytesText(bytes), name, String(stream), ""];
    }
    const { name, bytes, stream, life } = program.subject(number, moment);
    const span = life[1] === null ? counted(life[0], "event") : timeText(life[1]);
    return [...what, bytesText(bytes), name, String(stream), program.to[number] === NEVER ? "to the end" : span];
  }
}
