// The page of histories, of which a menu chooses one.

const BY = [["group", "Group"], ["size", "Size class"], ["stream", "Stream"]];

/** The place of the comparison among the histories. */
const COMPARED = -1;

const MODES = [["groups", "Groups"], ["blocks", "Blocks"], ["segments", "Segments"]];

const TRACE_KEYS = [
  ["+ −", "Zoom, around the pinned moment."],
  ["Ctrl Wheel", "Zoom around the pointer. The wheel alone scrolls the page, and with Shift it moves the picture."],
  ["← →", "Move. So does dragging, and the strip below the picture."],
  ["0", "Show everything again. So does a double click."],
  [", .", "The previous event, the next one. A click pins a moment."],
  ["< >", "Back by a hundred events, or on by a hundred."],
  ["b", "Show groups, single blocks, or segments. A click on a block pins it, and a click on a segment the block that it was taken for."],
  ["[ ]", "Select the events after the pinned moment, or up to it, to sum them up. So does dragging with Shift. Escape selects nothing."],
  ["z", "Zoom into what is selected."],
  ["/", "Write a filter: words of a name, and sizes (>1MiB), lifetimes (life<5ms), ages (age>2s), streams (stream=1) and frames (stack=main.rs)."],
  ["f n N", "Write a search, in the words of a filter; then go to the next block that matches, or the previous one."],
  ["p", "The moment with the most bytes in use."],
  ["e", "The end."],
  ["o", "The next place where memory ran out."],
  ["g", "Group blocks by group, by size class, or by stream."],
  ["r", "Show the reserved bytes, or give the bytes in use the whole height."],
  ["c", "An axis of time, or of events. The page opens with events if most of the time is idle."],
  ["Tab Home ← → ↑ ↓", "On the map: from block to block. Enter enlarges the segment."],
  ["x", "Export: save the history for Perfetto (ui.perfetto.dev) or chrome://tracing."],
  ["t", "Light or dark."],
  ["?", "This help."],
];

/** Shows the history that the address names, or else the comparison, or the first history. */
function historyPages(about, state) {
  if (about.comparison) alignGroupings(about);
  const programs = about.histories.map(() => null);
  const programOf = place => (programs[place] ??= new Program({ ...about.histories[place], columns: about.tables[place] }));
  const show = () => {
    state.restart();
    const chosen = Number.parseInt(state.get("history"), 10) - 1;
    const place = chosen in programs ? chosen : about.comparison ? COMPARED : 0;
    if (place === COMPARED) historiesCompared(about, [programOf(0), programOf(1)], state, historyMenu(about, state, place));
    else tracePage(about, programOf(place), state, place);
    state.on("history", show);
  };
  show();
}

/** Shows the history at `place`, which is `first` at first. What is pinned belongs to the history that is left. */
function chooseHistory(state, place, first = 0) {
  for (const name of ["range", "at", "block", "only", "selection"]) state.set(name, null);
  state.set("history", place === first ? null : place + 1);
}

/** A menu of the histories, and of their comparison; nothing where there is one. */
function historyMenu(about, state, place) {
  if (about.histories.length < 2) return null;
  const entries = about.histories.map(({ name }, place) => ({ name, place }));
  if (about.comparison) entries.unshift({ name: "Compared", place: COMPARED });
  const menu = element("select", { id: "history", class: "button", "aria-label": "The device or pool",
    title: entries.find(entry => entry.place === place).name,
    onchange: () => chooseHistory(state, entries[menu.selectedIndex].place, entries[0].place),
  }, entries.map(entry => element("option", { selected: entry.place === place }, entry.name)));
  return menu;
}

function tracePage(about, program, state, place) {
  const { numbers } = program;
  const by = () => (BY.some(([name]) => name === state.get("by")) ? state.get("by") : about.by);
  program.showOnly(null);
  program.groupBy(by());
  const timeline = new Timeline(program, state);
  const pin = moment => timeline.pin(moment);
  const pinBlock = block => state.set("block", block);
  const map = new MapWithLens((segment, range) => describeRange(program, segment, range, timeline.moment),
    range => range.state === "active" && pinBlock(range.block));
  const toggleReserved = () => state.set("reserved", timeline.hidesReserved ? null : "hidden");
  const isolated = () => {
    const series = program.series.map((_, series) => series).concat(SERIES).find(series => program.seriesName(series) === state.get("only"));
    return series ?? null;
  };
  const legend = new Legend(series => {
    timeline.focused = series;
    timeline.redraw();
  }, series => state.set("only", isolated() === series ? null : program.seriesName(series)), toggleReserved);
  const table = groupTable(program, pin);
  const blocks = new BlockList(program, pin);
  const blockPanel = new BlockPanel(program, (from, to) => {
    const [low, high] = [program.place(from, timeline.clock), program.place(to, timeline.clock)];
    const beside = Math.max((high - low) * 0.1, 1);
    timeline.setRange(low - beside, high + beside);
  }, () => pinBlock(null));
  const events = new EventList(program, (moment, block) => {
    if (block !== null) pinBlock(block);
    pin(moment);
  });
  const stacks = program.stacks.length > 0 ? new StackPanel(program, state) : null;
  const filterBar = new FilterBar(text => state.set("filter", text === "" ? null : text));
  const findBar = new FindBar(program, text => state.set("find", text === "" ? null : text), block => {
    pinBlock(block);
    pin(program.from[block] + 1);
  });
  const select = (from, to) => state.set("selection", `${from}~${to}`);
  const selectNothing = () => state.set("selection", null);
  const zoomIn = () => {
    if (!timeline.selection) return;
    const [from, to] = timeline.selection.map(moment => program.place(moment, timeline.clock));
    timeline.setRange(from, to + (timeline.clock === "events" ? 1 : 0));
  };
  const selectionPanel = new SelectionPanel(program, pin, zoomIn, selectNothing);

  const hasGroups = numbers.groups.length > 1 || !numbers.groups.some(row => row.name === "(no group)");
  const bySwitch = switchOf("Group blocks by", BY.map(([name, text]) => [name, text, name !== "group" || hasGroups]), by(),
    name => state.set("by", name));
  const clockSwitch = switchOf("The axis", [["time", "Time", numbers.has_times], ["events", "Events"]], timeline.clock,
    name => {
      state.set("range", null);
      state.set("clock", name);
    });
  const mode = () => (MODES.some(([name]) => name === state.get("mode")) ? state.get("mode") : MODES[0][0]);
  const setMode = name => state.set("mode", name === MODES[0][0] ? null : name);
  const modeSwitch = switchOf("Show", MODES, mode(), setMode);
  const note = element("p", { class: "quiet map-key", id: "blocks-note" });
  const zoomButton = (id, text, label, act) => element("button", { type: "button", class: "button small", id, "aria-label": label, title: label,
    onclick: act }, text);
  const zoomButtons = element("div", { class: "buttons" },
    zoomButton("zoom-out", "−", "Zoom out (−)", () => timeline.zoom(1.6)),
    zoomButton("zoom-in", "+", "Zoom in (+)", () => timeline.zoom(1 / 1.6)),
    zoomButton("reset", "All", "Show everything (0)", () => state.set("range", null)));

  const moment = element("span", { id: "moment", "aria-live": "polite" });
  const momentFigures = element("div", { class: "aside" });
  const help = helpDialog(TRACE_KEYS, WORDS);
  const answers = element("div", { class: "answers" });
  const shortage = element("div", { class: "slot" });
  const ranOut = shortageOf(program);
  const file = numbers.file.split("/").pop();
  const segmentName = segment => `segment ${segment + 1}`;
  document.getElementById("page").replaceChildren(
    element("p", { class: "origin", id: "origin" }, originText(numbers)),
    counterpartPanel(about, state, place) ?? "",
    head(state, file, [
      numbers.device, numbers.limit_bytes ? `limit ${bytesText(numbers.limit_bytes)}` : null, counted(numbers.events, "event"), counted(numbers.blocks, "block"),
      numbers.has_times ? timeText(program.span[1] - program.span[0]) : null,
    ], help, [historyMenu(about, state, place), exportButton(program)]),
    element("main", {},
      answers, shortage,
      panel("timeline", "Memory over time", [modeSwitch, bySwitch, clockSwitch, zoomButtons],
        element("div", { class: "filters" }, filterBar.element, findBar.element),
        element("div", { class: "with-aside" }, element("div", {}, timeline.stage, timeline.whole, note, selectionPanel.element, blockPanel.element), legend.element)),
      panel("moment-panel", "Memory map", [moment, stepButtons(timeline)],
        element("div", { class: "with-aside" }, element("div", {}, map.element, mapKey(["held", "held, free"], ...(program.waiting.some(moment => moment > 0) ? [["pending", "pending: freed, but another stream uses it"]] : [])), blocks.element), momentFigures)),
      stacks?.element ?? null,
      panel("events", "Events", [events.count, events.select], events.element),
      panel("groups", "Who uses it", element("span", { class: "quiet" }, "Click a title to sort."), table.element)),
    help, tooltip.box);

  const showAnswers = () => {
    answers.replaceChildren(usedAnswer(program, pin), ranOutAnswer(program, shortage => timeline.pinShortage(shortage)), leakedAnswer(program, pin));
    if (ranOut) {
      const { failed, moment, where, hasCapacity } = ranOut;
      shortage.replaceChildren(shortagePanel(failed, partsAt(program, moment), where, roomLists(failed, segmentName, block => {
        pinBlock(block);
        pin(moment);
      }), hasCapacity));
    }
  };
  const showHovered = () => legend.show(program, timeline.hovered ?? timeline.moment, timeline.clock, timeline.hidesReserved);
  timeline.recross = once(() => {
    timeline.drawOver();
    showHovered();
  });
  const showBlock = () => blockPanel.fill(timeline.block, timeline.moment);
  /** Lets the page show the blocks that the filter and the legend leave. */
  const filter = () => {
    const text = state.get("filter") ?? "";
    const made = filterOf(text, numbers.has_times);
    const only = isolated();
    let [mask, shown] = [null, numbers.blocks];
    if (!made.isEmpty || only !== null) {
      mask = new Uint8Array(numbers.blocks);
      shown = 0;
      for (let block = 0; block < mask.length; block++) {
        if (only !== null && program.seriesOf[program.numberOf[block]] !== only) continue;
        mask[block] = made.test(program.subject(block, timeline.moment)) ? 1 : 0;
        shown += mask[block];
      }
    }
    program.showOnly(mask);
    filterBar.show(text, made.error, shown, numbers.blocks);
    events.show(mask ? made : null);
    usesAge = made.usesAge;
    findBar.show(state.get("find") ?? "", timeline.moment);
    selectionPanel.fill(timeline.selection);
  };
  let usesAge = false;
  /** The colours of groups mean nothing where segments are shown. */
  const buildLegend = () => legend.build(program, isolated(), !timeline.showsSegments);
  const refilter = () => {
    filter();
    buildLegend();
    showMoment();
    timeline.redraw();
  };
  const showNote = () => {
    note.hidden = !timeline.showsBlocks && !timeline.showsSegments;
    note.textContent = timeline.showsBlocks
      ? "Each block in its group's colour, over its life. Blocks of less than half a pixel are one grey area on top: zoom in, or press r, to see more of them."
      : "Each segment over its life, in two greys without a meaning: a segment has blocks of any group. A click pins the block that it was taken for.";
  };
  const showMoment = () => {
    const at = program.at(timeline.moment);
    moment.textContent = `at ${program.momentText(at.moment, timeline.clock)}`;
    map.show(at, at.moment === ranOut?.moment ? roomFrames(ranOut.failed, segmentName) : []);
    blocks.show(at);
    events.pin(at.moment);
    findBar.at(at.moment);
    stacks?.show(at.moment);
    showBlock();
    momentFigures.replaceChildren(figures([
      ["in use", bytesText(at.active), "moment-active"],
      ["blocks", countText(at.blocks), "moment-blocks"],
      at.waiting > 0 ? ["freed, but another stream uses it", bytesText(at.waiting), "moment-waiting"] : null,
      ["lost to rounding up", bytesText(at.inBlocks - at.active), "moment-rounding"],
      ["held, free", bytesText(at.held), "moment-held"],
      ["reserved", bytesText(at.reserved), "moment-reserved"],
      ...freeRows(at.free),
    ].filter(Boolean)));
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
    filter();
    buildLegend();
    showAnswers();
    showMoment();
    timeline.redraw();
  };
  state.on("by", () => {
    state.set("only", null);
    regroup();
  });
  state.on("at", once(() => (usesAge ? refilter() : showMoment())));
  state.on("filter only", refilter);
  state.on("find", () => findBar.show(state.get("find") ?? "", timeline.moment));
  state.on("selection", () => {
    selectionPanel.fill(timeline.selection);
    timeline.recross();
  });
  state.on("mode", () => {
    modeSwitch.show(mode());
    showNote();
    buildLegend();
    timeline.redraw();
    timeline.recross();
  });
  state.on("block", () => {
    showBlock();
    timeline.redraw();
  });
  state.on("stacks stacks-at", () => stacks?.show(timeline.moment));
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
  showNote();
  regroup();

  const nextOf = (list, now) => list[(list.indexOf(now) + 1) % list.length];
  const failures = [...numbers.shortages.map(shortage => [shortage.moment, () => timeline.pinShortage(shortage)]),
    ...(numbers.out_of_memory ? [[program.moments, () => pin(program.moments)]] : [])];
  const step = count => () => pin(timeline.moment + count);
  listenToKeys(state, {
    "+": () => timeline.zoom(1 / 1.6), "=": () => timeline.zoom(1 / 1.6),
    "-": () => timeline.zoom(1.6), "−": () => timeline.zoom(1.6),
    ArrowLeft: () => timeline.pan(-0.15), ArrowRight: () => timeline.pan(0.15),
    0: () => state.set("range", null),
    ",": step(-1), ".": step(1), "<": step(-100), ">": step(100),
    p: () => pin(numbers.peak_active.moment), e: () => pin(program.moments),
    o: () => {
      const next = failures.find(([moment]) => moment > timeline.moment) ?? failures[0];
      next?.[1]();
    },
    r: toggleReserved,
    b: () => setMode(nextOf(MODES.map(([name]) => name), mode())),
    "/": () => filterBar.input.focus(),
    f: () => findBar.input.focus(), n: () => findBar.step(1, timeline.moment), N: () => findBar.step(-1, timeline.moment),
    "[": () => {
      const to = timeline.selection?.[1] ?? program.moments;
      select(timeline.moment, to > timeline.moment ? to : program.moments);
    },
    "]": () => {
      const from = timeline.selection?.[0] ?? 0;
      select(from < timeline.moment ? from : 0, timeline.moment);
    },
    z: zoomIn, Escape: selectNothing,
    x: () => document.getElementById("export").click(),
    g: () => state.set("by", nextOf(BY.map(([name]) => name).filter(name => name !== "group" || hasGroups), by())),
    c: () => numbers.has_times && clockSwitch.querySelector("[aria-checked=false]").click(),
    t: () => document.getElementById("theme").click(),
    "?": () => openHelp(help),
  });
  ready();
}

/** The contents of the memory at a moment, the largest first: [bytes, series or state, name]. */
function partsAt(program, moment) {
  const stack = [...program.stackAt(moment)].map((bytes, series) => [bytes, series]).filter(([bytes]) => bytes > 0);
  const parts = stack.map(([bytes, series]) => [bytes, series, program.seriesName(series)]).sort(([one], [other]) => other - one);
  const at = program.at(moment);
  return [...parts,
    [at.inBlocks - at.active, "live", "added by rounding up to size classes"],
    [at.held, "held", "held by the pool, free"]];
}

function describeRange(program, segment, range, moment) {
  const where = ["place", `${segment.name}, at byte ${countText(range.offset)}`];
  if (range.state === "active") {
    const rows = program.lifeOf(range.block, moment);
    return { title: `${bytesText(range.bytes)} in use`, rows: [...rows, where] };
  }
  return { title: `${bytesText(range.bytes)} free`, rows: [
    ["held", "by the pool, for later requests"], where,
    ["blocks", countText(segment.ranges.filter(({ state }) => state === "active").length)],
    ...program.segmentRows(segment.number).map(([what, value]) => [`segment: ${what}`, value]),
  ] };
}

function stepButtons(timeline) {
  const button = (text, label, act) => element("button", { type: "button", class: "button small", "aria-label": label, title: label,
    onclick: act }, text);
  const { numbers } = timeline.program;
  return element("div", { class: "buttons" },
    button("‹", "The previous event (,)", () => timeline.pin(timeline.moment - 1)),
    button("›", "The next event (.)", () => timeline.pin(timeline.moment + 1)),
    button("Peak", "The most bytes in use (p)", () => timeline.pin(numbers.peak_active.moment)),
    button("End", "The end (e)", () => timeline.pin(timeline.program.moments)));
}

/** `free` are [state, name]. */
function mapKey(...free) {
  return element("p", { class: "quiet map-key" }, "Each bar is a segment, as wide as it is large; a click, or Enter, enlarges it. ",
    free.map(([state, name]) => element("span", { class: "key" }, swatch(state), ` ${name} `)));
}

function groupTable(program, pin) {
  const amount = (title, of, note) => ({ title, number: true, value: of, text: row => bytesText(of(row)), note });
  const count = (title, of, note) => ({ title, number: true, value: of, text: row => countText(of(row)), note });
  return new SortedTable("Who uses the memory", [
    { title: "Name", value: row => row.name, cell: row =>
      element("span", { class: "named" }, swatch(program.seriesOf[row.number]), nameText(row.name)) },
    amount("Peak", row => row.peak_bytes, "The most bytes in use at once, as the program asked for them"),
    { title: "Peak at", number: true, value: row => row.peak_moment, note: "The first moment of the peak",
      cell: row => momentButton(program, row.peak_moment, pin) },
    amount("At the pinned moment", row => row.now, "In use at the pinned moment"),
    amount("In use at the end", row => row.end_bytes, "Leaked, or meant to stay"),
    count("Blocks at the end", row => row.end_blocks, "Leaked, or meant to stay"),
    count("Blocks in all", row => row.blocks, "The number of allocations"),
  ], 1);
}
