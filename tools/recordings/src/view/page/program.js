// The history of each block, and the figures at any moment. A moment is the number of events that are done.

const NEVER = 0xffffffff;
/** The series are stored after every so many events, so that a moment is found in few steps. */
const STRIDE = 256;
/** The stack of a block whose stack is not known. */
const NO_FRAMES = [];

/** The folders that all names have in front which have any; nothing where fewer than two have. */
function sharedFolder(names) {
  const folders = names.filter(name => /^\S+\//.test(name)).map(name => name.match(/^\S*\//)[0]);
  const [first] = folders;
  return folders.length > 1 && folders.every(folder => folder === first) ? first : "";
}

/** The place after the last of rising numbers of which `is` holds. */
function placeAfter(numbers, is) {
  let [low, high] = [0, numbers.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (is(numbers[middle])) low = middle + 1;
    else high = middle;
  }
  return low;
}

class Program {
  constructor({ numbers, columns, groupings, clock }) {
    this.numbers = numbers;
    /** The axis that its page opens on: `time`, or `events` where most of the time is idle. */
    this.clock = clock;
    this.groupings = groupings;
    this.rowsOf = Object.fromEntries(groupings.map(({ name, rows }) => [name, rows]));
    this.columns = columns;
    this.moments = numbers.events;
    this.asked = columns.asked;
    this.segment = columns.segment;
    this.offset = columns.offset;
    this.stack = columns.stack;
    this.waiting = columns.waiting;
    this.stacks = numbers.stacks.map(({ frames }) => frames);
    const blocks = this.asked.length;
    this.bytes = new Float64Array(blocks);
    for (let block = 0; block < blocks; block++) this.bytes[block] = this.asked[block] + columns.more[block];
    this.readEvents(columns.frees, blocks);
    this.times = columns.times.length > 0 ? risen(columns.times) : null;
    this.readSegments(columns);
    this.readSegmentTimes();
    this.reservedPeaks = new Peaks(this.reserved);
    this.scratch = new Float64Array(SERIES + 1);
    this.lastSubject = {};
    this.showOnly(null);
  }

  /** Lets the picture show only the blocks with a 1 in `mask`, or all where that is null. */
  showOnly(mask) {
    this.mask = mask;
    this.inUse = new BlocksInUse(this, mask);
    /** The bytes in use of the blocks that are shown, at each moment. */
    this.shown = this.active;
    if (mask) {
      this.shown = new Float64Array(this.moments + 1);
      let now = 0;
      for (let event = 0; event < this.block.length; event++) {
        const block = this.block[event];
        if (block >= 0) now += mask[block] * this.asked[block];
        else now -= mask[~block] * this.asked[~block];
        this.shown[event + 1] = now;
      }
      this.shown.fill(now, this.block.length + 1);
    }
    this.shownPeaks = new Peaks(this.shown);
    if (this.by) this.sumSeries();
  }

  /** What a filter is told of a block, in an object that the next call writes over. */
  subject(block, moment) {
    const subject = this.lastSubject;
    const [from, to] = [this.from[block] + 1, Math.min(this.to[block] + 1, this.moments)];
    const span = (from, to) => [to - from, this.times ? this.place(to, "time") - this.place(from, "time") : null];
    subject.name = this.nameOf(block);
    subject.bytes = this.asked[block];
    subject.stream = this.streamOf(block);
    subject.stack = this.stackOf(block);
    subject.life = span(from, to);
    subject.age = from <= moment && moment <= this.to[block] ? span(from, moment) : null;
    return subject;
  }

  /** The name of a block's group, in full. */
  nameOf(block) {
    return this.rowOf("group", block).name;
  }

  /** The frames of its request, innermost first; none where they are not known. */
  stackOf(block) {
    return this.stacks[this.stack[block] - 1] ?? NO_FRAMES;
  }

  /** Whether the program has freed a block by a moment, which waits there for commands of other streams. */
  isWaiting(block, moment) {
    return this.waiting[block] > 0 && moment >= this.waiting[block] - 1;
  }

  /** The other streams that a block was used on, where the recording says it. */
  otherStreamsOf(block) {
    return Array.from(this.columns.use_stream.filter((_, use) => this.columns.use_block[use] === block));
  }

  streamOf(block) {
    return Number(this.rowOf("stream", block).name.replace("stream ", ""));
  }

  rowOf(grouping, block) {
    return this.rowsOf[grouping][this.columns[grouping][block]];
  }

  /** Which block each event allocates (its number), or frees (its complement), and what is active after each. */
  readEvents(frees, blocks) {
    this.block = new Int32Array(frees.length);
    this.from = new Uint32Array(blocks);
    this.to = new Uint32Array(blocks).fill(NEVER);
    this.active = new Float64Array(this.moments + 1);
    let next = 0;
    let active = 0;
    for (let event = 0; event < frees.length; event++) {
      if (frees[event] === 0) {
        this.block[event] = next;
        this.from[next] = event;
        active += this.asked[next++];
      } else {
        const block = next - frees[event];
        this.block[event] = ~block;
        this.to[block] = event;
        active -= this.asked[block];
      }
      this.active[event + 1] = active;
    }
    // Where memory ran out, one more event does neither.
    this.active.fill(active, frees.length + 1);
  }

  readSegments(columns) {
    this.segmentBytes = columns.segment_bytes;
    this.segmentFrom = risen(columns.segment_from);
    this.segmentReservation = columns.segment_reservation;
    this.segmentOffset = columns.segment_offset;
    this.segmentTo = columns.segment_to.map(place => (place === 0 ? NEVER : place - 1));
    this.reserved = new Float64Array(this.moments + 1);
    for (let segment = 0; segment < this.segmentBytes.length; segment++) {
      this.reserved[this.segmentFrom[segment] + 1] += this.segmentBytes[segment];
      const gone = this.segmentTo[segment] + 1;
      if (gone <= this.moments) this.reserved[gone] -= this.segmentBytes[segment];
    }
    for (let moment = 1; moment <= this.moments; moment++) this.reserved[moment] += this.reserved[moment - 1];
  }

  /** When each segment was taken and given back, where the recording says so: between two events. NaN where it does not. */
  readSegmentTimes() {
    this.takenAt = new Float64Array(this.segmentBytes.length).fill(NaN);
    this.givenBackAt = this.takenAt.slice();
    /** The number of events before each was given back, where the recording says so. */
    this.givenBackAfter = new Map();
    for (const { what, moment, segment, time_ns: time } of this.numbers.pool_events) {
      if (segment === null) continue;
      const isTaken = what === "taken" || what === "mapped";
      if (!isTaken) this.givenBackAfter.set(segment, moment);
      if (time !== null) (isTaken ? this.takenAt : this.givenBackAt)[segment] = time;
    }
    const isTold = this.times !== null && this.numbers.pool_events.some(({ segment }) => segment !== null);
    this.reservedSteps = isTold ? this.stepsOfReserved() : null;
  }

  /** The times at which segments came and went, which may lie between two events, and what is reserved from each on. */
  stepsOfReserved() {
    const orEvent = (time, moment) => (Number.isNaN(time) ? this.place(moment, "time") : time);
    const changes = [];
    this.segmentBytes.forEach((bytes, segment) => {
      const [from, to] = [this.segmentFrom[segment], this.segmentTo[segment]];
      changes.push([orEvent(this.takenAt[segment], from + 1), bytes]);
      if (to !== NEVER) changes.push([orEvent(this.givenBackAt[segment], to + 1), -bytes]);
    });
    changes.sort(([one], [other]) => one - other);
    let now = 0;
    const bytes = Float64Array.from(changes, ([, change]) => (now += change));
    return { times: Float64Array.from(changes, ([time]) => time), bytes, peaks: new Peaks(bytes) };
  }

  /** The most that is reserved in a range of time. */
  reservedBetween(from, to) {
    const { times, bytes, peaks } = this.reservedSteps;
    const first = placeAfter(times, time => time <= from) - 1;
    const last = Math.max(first, placeAfter(times, time => time < to) - 1);
    return last < 0 ? 0 : bytes[peaks.between(Math.max(0, first), last)];
  }

  /** The block that a segment was taken for: the one of the request that had no room; null where that is not known. */
  blockOfSegment(segment) {
    const block = this.block[this.segmentFrom[segment]];
    return block >= 0 && this.segment[block] === segment + 1 ? block : null;
  }

  /** What is told of a segment. */
  segmentRows(segment) {
    const [from, to] = [this.segmentFrom[segment], this.segmentTo[segment]];
    const block = this.blockOfSegment(segment);
    return [
      ["size", bytesInFull(this.segmentBytes[segment])],
      ["taken", this.momentText(from + 1, "events", this.takenAt[segment])],
      block === null ? null : ["taken for", `block ${countText(block + 1)}, ${this.nameOf(block)}`],
      ["given back", to === NEVER ? "never" : this.momentText(to + 1, "events", this.givenBackAt[segment])],
    ].filter(Boolean);
  }

  /** Groups the blocks: the largest groups are series of their own, all others together are one. */
  groupBy(name) {
    this.by = name;
    const { rows, series } = this.groupings.find(grouping => grouping.name === name);
    this.rows = rows;
    this.series = series;
    this.numberOf = this.columns[name];
    this.seriesOf = new Uint8Array(rows.length).fill(SERIES);
    this.series.forEach((number, series) => (this.seriesOf[number] = series));
    this.others = this.rows.length - this.series.length;
    this.folder = sharedFolder(series.map(number => rows[number].name));
    this.sumSeries();
  }

  /** Sums up what is in use of each series, after every so many events. */
  sumSeries() {
    const marks = Math.floor(this.moments / STRIDE) + 1;
    this.marks = new Float64Array(marks * (SERIES + 1));
    const now = new Float64Array(SERIES + 1);
    for (let event = 0; event < this.block.length; event++) {
      if (event % STRIDE === 0) this.marks.set(now, (event / STRIDE) * (SERIES + 1));
      this.apply(event, now);
    }
    for (let mark = Math.ceil(this.block.length / STRIDE); mark < marks; mark++) this.marks.set(now, mark * (SERIES + 1));
  }

  apply(event, now) {
    const isFree = this.block[event] < 0;
    const block = isFree ? ~this.block[event] : this.block[event];
    if (this.mask && !this.mask[block]) return;
    now[this.seriesOf[this.numberOf[block]]] += isFree ? -this.asked[block] : this.asked[block];
  }

  /** The colour and the pattern of a series. */
  inkOf(series) {
    return colorOf(series);
  }

  /** The bytes of each series at a moment. The next call may write over them. */
  stackAt(moment, now = this.scratch) {
    const mark = Math.floor(moment / STRIDE);
    now.set(this.marks.subarray(mark * (SERIES + 1), (mark + 1) * (SERIES + 1)));
    const last = Math.min(moment, this.block.length);
    for (let event = mark * STRIDE; event < last; event++) this.apply(event, now);
    return now;
  }

  seriesName(series) {
    if (series < SERIES) return this.rows[this.series[series]].name;
    return `${countText(this.others)} other${this.others === 1 ? "" : "s"}`;
  }

  /** Its name where there is little room: without the folder that all of them are in. */
  shortName(series) {
    const name = this.seriesName(series);
    return name.startsWith(this.folder) ? name.slice(this.folder.length) : name;
  }

  /** The position of a moment's beginning on the axis of `clock`. */
  place(moment, clock) {
    if (clock !== "time") return moment;
    return moment === 0 ? this.ends(clock)[0] : this.times[Math.min(moment, this.times.length) - 1];
  }

  /** The moment at a position on the axis. */
  momentAt(place, clock) {
    if (clock !== "time") return Math.max(0, Math.min(this.moments, Math.floor(place)));
    return Math.min(placeAfter(this.times, time => time <= place), this.moments);
  }

  /** The position of a request that failed when the program was recorded: its own time, which is that of no event. */
  placeOfShortage({ moment, time_ns: time }, clock) {
    return clock === "time" ? time : moment;
  }

  /** When it failed, in words. */
  shortageText(shortage) {
    const { moment, time_ns: time } = shortage;
    const event = moment === 0 ? "before the first event" : `after event ${countText(moment)}`;
    return this.times ? `${timeText(time, 2)} (${event})` : this.momentText(moment);
  }

  /** The first and the last time of anything that is shown: failures, and what the pool did, may be outside the events. */
  get span() {
    const lists = [this.numbers.shortages, this.numbers.pool_events].filter(list => list.length > 0);
    return [
      lists.reduce((first, list) => Math.min(first, list[0].time_ns), this.times[0]),
      lists.reduce((last, list) => Math.max(last, list.at(-1).time_ns), this.times.at(-1)),
    ];
  }

  /** The whole axis: a bit more than the last moment, so that it is seen. Times begin at 0, unless little would be left of the picture. */
  ends(clock) {
    if (clock !== "time") return [0, this.moments + 1];
    const [earliest, last] = this.span;
    const first = earliest < last / 10 ? 0 : earliest;
    return [first, last + Math.max(1, (last - first) * 0.004)];
  }

  /** A moment in words, with the time `at`, unless that is NaN, or else with that of its event. */
  momentText(moment, clock, at = NaN) {
    const event = moment === 0 ? "before the first event" : `event ${countText(moment)}`;
    if (!this.times || moment === 0) return event;
    const time = timeText(Number.isNaN(at) ? this.place(moment, "time") : at, 2);
    return clock === "time" ? `${time} (${event})` : `${event} (${time})`;
  }

  /** The segments at a moment, where adjoining pages are one, and which of these each segment is in, at which offset. */
  segmentsAt(moment) {
    const { segmentBytes, segmentFrom, segmentTo, segmentReservation: reservation, segmentOffset: offset } = this;
    const there = [...segmentBytes.keys()].filter(segment => segmentFrom[segment] < moment && moment <= segmentTo[segment]);
    there.sort((one, other) => reservation[one] - reservation[other] || offset[one] - offset[other]);
    const segments = [];
    const places = new Map();
    let before = null;
    for (const segment of there) {
      const adjoins = before !== null && reservation[segment] > 0 && reservation[before] === reservation[segment] &&
        offset[before] + segmentBytes[before] === offset[segment];
      if (!adjoins) segments.push({ name: `segment ${segment + 1}`, number: segment, bytes: 0, ranges: [] });
      const of = segments.at(-1);
      places.set(segment, { segment: of, offset: of.bytes });
      of.bytes += segmentBytes[segment];
      before = segment;
    }
    return { segments, places };
  }

  /** The blocks that are in use at a moment. */
  blocksAt(moment) {
    const there = [];
    for (let block = 0; block < this.from.length; block++) {
      if (this.from[block] < moment && moment <= this.to[block]) there.push(block);
    }
    return there;
  }

  /** The state at a moment: the segments with their ranges, and their figures. */
  at(moment) {
    const there = this.blocksAt(moment);
    const { segments, places } = this.segmentsAt(moment);
    let [active, inBlocks, waiting] = [0, 0, 0];
    const groups = new Float64Array(this.rows.length);
    for (const block of there) {
      active += this.asked[block];
      inBlocks += this.bytes[block];
      if (this.isWaiting(block, moment)) waiting += this.asked[block];
      groups[this.numberOf[block]] += this.asked[block];
      const place = places.get(this.segment[block] - 1);
      place?.segment.ranges.push({
        offset: place.offset + this.offset[block], bytes: this.bytes[block], state: "active", isWaiting: this.isWaiting(block, moment),
        series: this.seriesOf[this.numberOf[block]], block, faded: Boolean(this.mask) && !this.mask[block],
      });
    }
    const reserved = this.reserved[moment];
    const map = mapOf(segments, "held");
    return { moment, active, there, blocks: there.length, inBlocks, waiting, reserved, held: reserved - inBlocks, groups, ...map };
  }

  /** A block's life, for display. */
  lifeOf(block, moment) {
    const [from, to] = [this.from[block] + 1, this.to[block]];
    const freed = to === NEVER ? "never" : this.momentText(to + 1, "events");
    const span = ([events, time]) => (time === null ? counted(events, "event") : `${timeText(time)}, ${counted(events, "event")}`);
    const { age, life } = this.subject(block, moment);
    const others = this.otherStreamsOf(block);
    return [
      ["asked", bytesInFull(this.asked[block])],
      ["class", bytesInFull(this.bytes[block])],
      ["group", this.nameOf(block)],
      ["stream", String(this.streamOf(block))],
      others.length > 0 ? ["also used on stream", others.join(", ")] : null,
      ["allocated", this.momentText(from, "events")],
      this.waiting[block] > 0 ? ["freed by the program", this.momentText(this.waiting[block] - 1, "events")] : null,
      ["freed", freed],
      age ? ["age", span(age)] : null,
      ["lifetime", to === NEVER ? `${span(life)}, to the end` : span(life)],
    ].filter(Boolean);
  }
}

/** Segments with their free ranges among the others, called `state`, and how scattered these are. */
function mapOf(segments, state) {
  const free = { bytes: 0, ranges: 0, largest: 0 };
  for (const segment of segments) {
    const used = segment.ranges.sort((one, other) => one.offset - other.offset);
    segment.ranges = [];
    let end = 0;
    const fill = to => {
      const bytes = to - end;
      if (bytes <= 0) return;
      segment.ranges.push({ offset: end, bytes, state });
      free.bytes += bytes;
      free.ranges++;
      free.largest = Math.max(free.largest, bytes);
    };
    for (const range of used) {
      fill(range.offset);
      segment.ranges.push(range);
      end = range.offset + range.bytes;
    }
    fill(segment.bytes);
  }
  return { segments, free };
}
