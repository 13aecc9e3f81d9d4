// The page of a trace.

const BY = [["group", "Group"], ["size", "Size class"], ["stream", "Stream"]];

const TRACE_KEYS = [
  ["+ −", "Zoom, around the pinned moment. The wheel zooms around the pointer."],
  ["← →", "Move. So does dragging, and the strip below the picture."],
  ["0", "See all of it again. So does a double click."],
  [", .", "The previous moment, the next one. A click pins a moment; Shift and drag zooms into a part."],
  ["< >", "A hundred moments before, or behind."],
  ["p", "The peak of what is in use."],
  ["e", "The end."],
  ["o", "The next place where memory ran out."],
  ["g", "Tell blocks apart by group, by size class, or by stream."],
  ["r", "Show what is reserved, or give what is in use the whole height."],
  ["c", "Time, or events."],
  ["Tab Home ← → ↑ ↓", "On the map: from block to block. Enter enlarges the segment."],
  ["t", "Light or dark."],
  ["?", "This help."],
];

function tracePage(about, state) {
  const program = new Program(about);
  const { numbers } = program;
  const by = () => (BY.some(([name]) => name === state.get("by")) ? state.get("by") : about.by);
  program.groupBy(by());
  const timeline = new Timeline(program, state);
  const pin = moment => timeline.pin(moment);
  const map = new MapWithLens((segment, range) => describeRange(program, segment, range, timeline.moment));
  const toggleReserved = () => state.set("reserved", timeline.hidesReserved ? null : "hidden");
  const legend = new Legend(series => {
    timeline.focused = series;
    timeline.redraw();
  }, toggleReserved);
  const table = groupTable(program, pin);
  const blocks = new BlockList(program, pin);

  const hasGroups = numbers.groups.length > 1 || !numbers.groups.some(row => row.name === "(no group)");
  const bySwitch = switchOf("Tell blocks apart by", BY.map(([name, text]) => [name, text, name !== "group" || hasGroups]), by(),
    name => state.set("by", name));
  const clockSwitch = switchOf("The axis", [["time", "Time", numbers.has_times], ["events", "Events"]], timeline.clock,
    name => {
      state.set("range", null);
      state.set("clock", name);
    });
  const zoomButton = (id, text, label, act) => element("button", { type: "button", class: "button small", id, "aria-label": label, title: label,
    onclick: act }, text);
  const zoomButtons = element("div", { class: "buttons" },
    zoomButton("zoom-out", "−", "Zoom out (−)", () => timeline.zoom(1.6)),
    zoomButton("zoom-in", "+", "Zoom in (+)", () => timeline.zoom(1 / 1.6)),
    zoomButton("reset", "All", "See all of it (0)", () => state.set("range", null)));

  const moment = element("span", { id: "moment", "aria-live": "polite" });
  const momentFigures = element("div", { class: "aside" });
  const help = helpDialog(TRACE_KEYS, WORDS);
  const answers = element("div", { class: "answers" });
  const shortage = element("div", { class: "slot" });
  const file = numbers.file.split("/").pop();
  document.getElementById("page").replaceChildren(
    element("p", { class: "origin", id: "origin" }, numbers.origin === "happened" ? "As it happened" : "Simulated"),
    head(state, file, [
      numbers.device, numbers.limit_bytes ? `limit ${bytesText(numbers.limit_bytes)}` : null, counted(numbers.events, "event"), counted(numbers.blocks, "block"),
      numbers.has_times ? timeText(program.times.at(-1) - program.times[0]) : null,
    ], help),
    element("main", {},
      answers, shortage,
      panel("timeline", "Memory over time", [bySwitch, clockSwitch, zoomButtons],
        element("div", { class: "with-aside" }, element("div", {}, timeline.stage, timeline.whole), legend.element)),
      panel("moment-panel", "Where it lies", [moment, stepButtons(timeline)],
        element("div", { class: "with-aside" }, element("div", {}, map.element, mapKey("held, free")), momentFigures),
        blocks.element),
      panel("groups", "Who uses it", element("span", { class: "quiet" }, "Click a title to sort."), table.element)),
    help, tooltip.box);

  const showAnswers = () => {
    answers.replaceChildren(usedAnswer(program, pin), ranOutAnswer(program, pin), leakedAnswer(program, pin));
    const failed = numbers.out_of_memory;
    if (failed) shortage.replaceChildren(shortagePanel(failed, partsAt(program, program.moments), failed.event));
  };
  const showHovered = () => legend.show(program, timeline.hovered ?? timeline.moment, timeline.clock, timeline.hidesReserved);
  timeline.recross = once(() => {
    timeline.drawOver();
    showHovered();
  });
  const showMoment = () => {
    const at = program.at(timeline.moment);
    moment.textContent = `at ${program.momentText(at.moment, timeline.clock)}`;
    map.show(at);
    blocks.show(at);
    momentFigures.replaceChildren(figures([
      ["in use", bytesText(at.active), "moment-active"],
      ["blocks", countText(at.blocks), "moment-blocks"],
      ["lost to rounding up", bytesText(at.inBlocks - at.active), "moment-rounding"],
      ["held, free", bytesText(at.held), "moment-held"],
      ["reserved", bytesText(at.reserved), "moment-reserved"],
      ...freeRows(at.free),
    ]));
    Object.assign(momentFigures.dataset, {
      moment: at.moment, active: at.active, blocks: at.blocks, inBlocks: at.inBlocks, reserved: at.reserved,
      free: at.free.bytes, largest: at.free.largest, ranges: at.free.ranges,
      map: at.segments.reduce((sum, { ranges }) => ranges.reduce((sum, range) =>
        sum + (range.state === "active" ? range.bytes : 0), sum), 0),
    });
    table.show(program.rows.map((row, number) => ({ ...row, number, now: at.groups[number] })).filter(row => row.blocks > 0));
    timeline.recross();
  };
  const regroup = () => {
    program.groupBy(by());
    bySwitch.show(by());
    legend.build(program);
    showAnswers();
    showMoment();
    timeline.redraw();
  };
  state.on("by", regroup);
  state.on("at", once(showMoment));
  state.on("range", timeline.redraw);
  state.on("reserved", () => {
    timeline.redraw();
    timeline.recross();
  });
  state.on("clock", () => {
    clockSwitch.show(timeline.clock);
    timeline.redraw();
    showMoment();
  });
  followTheme(state, regroup);
  regroup();

  const nextOf = (list, now) => list[(list.indexOf(now) + 1) % list.length];
  const shortages = () => [...numbers.shortages.map(shortage => shortage.moment), ...(numbers.out_of_memory ? [program.moments] : [])];
  const step = count => () => pin(timeline.moment + count);
  listenToKeys({
    "+": () => timeline.zoom(1 / 1.6), "=": () => timeline.zoom(1 / 1.6),
    "-": () => timeline.zoom(1.6), "−": () => timeline.zoom(1.6),
    ArrowLeft: () => timeline.pan(-0.15), ArrowRight: () => timeline.pan(0.15),
    0: () => state.set("range", null),
    ",": step(-1), ".": step(1), "<": step(-100), ">": step(100),
    p: () => pin(numbers.peak_active.moment), e: () => pin(program.moments),
    o: () => {
      const next = shortages().find(moment => moment > timeline.moment) ?? shortages()[0];
      if (next !== undefined) pin(next);
    },
    r: toggleReserved,
    g: () => state.set("by", nextOf(BY.map(([name]) => name).filter(name => name !== "group" || hasGroups), by())),
    c: () => numbers.has_times && clockSwitch.querySelector("[aria-checked=false]").click(),
    t: () => document.getElementById("theme").click(),
    "?": () => help.showModal(),
  });
  ready();
}

/** The contents of the memory at a moment, the largest first: [bytes, series or state, name]. */
function partsAt(program, moment) {
  const stack = [...program.stackAt(moment)].map((bytes, series) => [bytes, series]).filter(([bytes]) => bytes > 0);
  const parts = stack.map(([bytes, series]) => [bytes, series, program.seriesName(series)]).sort(([one], [other]) => other - one);
  const at = program.at(moment);
  return [...parts,
    [at.inBlocks - at.active, "live", "rounding up to size classes"],
    [at.held, "held", "held by the pool, free"]];
}

function describeRange(program, segment, range, moment) {
  const where = ["place", `${segment.name}, from byte ${countText(range.offset)} on`];
  if (range.state === "active") {
    const rows = program.lifeOf(range.block, moment);
    return { title: `${bytesText(range.bytes)} in use`, rows: [...rows, where] };
  }
  return { title: `${bytesText(range.bytes)} free`, rows: [
    ["held", "by the pool, for the next request"], where,
    ["segment", `${bytesText(segment.bytes)}, ${counted(segment.ranges.filter(({ state }) => state === "active").length, "block")}`],
  ] };
}

function stepButtons(timeline) {
  const button = (text, label, act) => element("button", { type: "button", class: "button small", "aria-label": label, title: label,
    onclick: act }, text);
  const { numbers } = timeline.program;
  return element("div", { class: "buttons" },
    button("‹", "The previous moment (,)", () => timeline.pin(timeline.moment - 1)),
    button("›", "The next moment (.)", () => timeline.pin(timeline.moment + 1)),
    button("Peak", "The peak of what is in use (p)", () => timeline.pin(numbers.peak_active.moment)),
    button("End", "The end (e)", () => timeline.pin(timeline.program.moments)));
}

function mapKey(...free) {
  return element("p", { class: "quiet map-key" }, "Each bar is a segment, as wide as it is large; a click, or Enter, enlarges it. ",
    free.map(name => [swatch(name.split(",")[0]), ` ${name} `]));
}

function groupTable(program, pin) {
  const amount = (title, of, note) => ({ title, number: true, value: of, text: row => bytesText(of(row)), note });
  const count = (title, of, note) => ({ title, number: true, value: of, text: row => countText(of(row)), note });
  return new SortedTable("Who uses the memory", [
    { title: "Name", value: row => row.name, cell: row =>
      element("span", { class: "named" }, swatch(program.seriesOf[row.number]), element("span", { class: "name", title: row.name }, row.name)) },
    amount("Peak", row => row.peak_bytes, "The most that was in use at once, as it was asked for"),
    { title: "Peak at", number: true, value: row => row.peak_moment, note: "The first moment of that",
      cell: row => momentButton(program, row.peak_moment, pin) },
    amount("At the pinned moment", row => row.now, "In use at the moment that is pinned"),
    amount("In use at the end", row => row.end_bytes, "Leaked, or meant to stay"),
    count("Blocks at the end", row => row.end_blocks, "Leaked, or meant to stay"),
    count("Blocks in all", row => row.blocks, "How many allocations there were"),
  ], 1);
}
