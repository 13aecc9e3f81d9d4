// The page of two recordings, or of two snapshots: what is new, gone, or another size in the second.

const PROPERTIES = { group: "Group", size: "Size class", stream: "Stream", stack: "Call stack", tag: "Tag", call_site: "Call site" };
const TIMES_COMPARED = { peak: "At the peaks", end: "At the end", snapshot: "Now" };

const COMPARISON_KEYS = [
  ["t", "Light or dark."],
  ["?", "This help."],
];

/** The state of one of two pictures: each has its own range and its own pinned moment. */
class SideState {
  constructor(state, side) {
    this.state = state;
    this.side = side;
  }

  keyOf(name) {
    return name === "range" || name === "at" ? `${name}-${this.side}` : name;
  }

  get(name) {
    return this.state.get(this.keyOf(name));
  }

  set(name, value) {
    this.state.set(this.keyOf(name), value);
  }
}

/**
 * Gives both histories the rows of both, and as series the groups with the highest peak in either: a group has the same colour and
 * the same layer in both pictures.
 */
function alignGroupings({ histories, comparison }) {
  for (const grouping of histories[0].groupings) {
    // A line that an edit moved has one name in both.
    const moved = comparison.tables.filter(({ by }) => by === grouping.name).flatMap(({ rows }) => rows.filter(row => row.moved_from));
    for (const { name, moved_from: old } of moved) {
      const row = grouping.rows.find(row => row.name === old);
      if (row) row.name = name;
    }
    const both = histories.map(({ groupings }) => groupings.find(({ name }) => name === grouping.name));
    const peaks = new Map();
    for (const { rows } of both) {
      for (const { name, peak_bytes: peak } of rows) peaks.set(name, Math.max(peak, peaks.get(name) ?? 0));
    }
    const names = [...peaks.keys()].filter(name => peaks.get(name) > 0)
      .sort((one, other) => peaks.get(other) - peaks.get(one) || (one < other ? -1 : 1)).slice(0, SERIES);
    for (const side of both) {
      const places = new Map(side.rows.map(({ name }, place) => [name, place]));
      for (const name of names) {
        if (places.has(name)) continue;
        places.set(name, side.rows.length);
        side.rows.push({ name, peak_bytes: 0, peak_moment: 0, at_peak_bytes: 0, end_bytes: 0, end_blocks: 0, blocks: 0 });
      }
      side.series = names.map(name => places.get(name));
    }
  }
}

/** More is bad, less is good, and the same is neither. */
function toneOf([before, after]) {
  if (after === before) return "same";
  return after > before ? "bad" : "good";
}

function changeTable() {
  const change = row => row.bytes[1] - row.bytes[0];
  return new SortedTable("What has changed", [
    { title: "Name", value: row => row.name, cell: row => element("span", { class: "named" },
      nameText(row.name.split("\n")[0], row.moved_from ? `${row.name}\nIn the first: ${row.moved_from}` : row.name),
      row.moved_from && element("span", { class: "quiet" }, "moved")) },
    { title: "Change", value: row => row.change, cell: row => element("span", { class: `change ${row.change}` }, row.change) },
    { title: "Difference", number: true, value: row => Math.abs(change(row)), text: row => differenceText(row.bytes) },
    { title: "First", number: true, value: row => row.bytes[0], text: row => bytesText(row.bytes[0]) },
    { title: "Second", number: true, value: row => row.bytes[1], text: row => bytesText(row.bytes[1]) },
    { title: "Blocks", number: true, value: row => row.blocks[1], text: row => `${countText(row.blocks[0])} → ${countText(row.blocks[1])}` },
  ], 2);
}

/** The figures and tables of a comparison, and `pictures`, elements side by side. */
function comparisonPage(comparison, state, menu, pictures, restyle) {
  const named = comparison.files.map(file => file.split("/").pop());
  const properties = [...new Set(comparison.tables.map(({ by }) => by))];
  const times = [...new Set(comparison.tables.map(({ at }) => at))];
  const chosen = (key, all) => (all.includes(state.get(key)) ? state.get(key) : all[0]);
  const by = () => chosen("by", properties);
  const at = () => chosen("compare", times);
  const bySwitch = switchOf("Group blocks by", properties.map(name => [name, PROPERTIES[name]]), by(), name => state.set("by", name));
  const atSwitch = times.length < 2 ? null : switchOf("Compare", times.map(name => [name, TIMES_COMPARED[name]]), at(), name => state.set("compare", name));
  const table = changeTable();
  const summary = element("p", { class: "quiet", id: "change-summary" });
  const help = helpDialog(COMPARISON_KEYS, WORDS);
  document.getElementById("page").replaceChildren(
    element("p", { class: "origin", id: "origin" }, "Compared"),
    head(state, named.join(" → "), [`first: ${comparison.files[0]}`, `second: ${comparison.files[1]}`], help, menu),
    element("main", {},
      element("div", { class: `answers of-${comparison.figures.length}` }, comparison.figures.map(({ name, bytes }, place) =>
        answer(`figure-${place}`, name, toneOf(bytes), differenceText(bytes), `${bytesText(bytes[0])} → ${bytesText(bytes[1])}`))),
      pictures,
      panel("changes", "What has changed", [bySwitch, atSwitch], summary, table.element)),
    help, tooltip.box);
  const show = () => {
    const { rows } = comparison.tables.find(table => table.by === by() && table.at === at());
    const count = change => rows.filter(row => row.change === change).length;
    bySwitch.show(by());
    atSwitch?.show(at());
    summary.textContent = ["new", "gone", "grown", "shrunk", "same"].map(change => `${countText(count(change))} ${change}`).join(", ");
    table.show(rows);
  };
  const restyled = () => {
    restyle(by());
    show();
  };
  state.on("by", restyled);
  state.on("compare", show);
  followTheme(state, restyled);
  restyled();
  listenToKeys(state, { t: () => document.getElementById("theme").click(), "?": () => openHelp(help) });
  ready();
}

/** Shows two histories side by side, each over its own time, on one scale. */
function historiesCompared(about, programs, state, menu) {
  // Both have one axis, so that they can be compared.
  const clock = programs.some(program => program.clock === "events") ? "events" : "time";
  const timelines = programs.map((program, side) => {
    program.clock = clock;
    const timeline = new Timeline(program, new SideState(state, side + 1));
    timeline.leastHigh = Math.max(...about.histories.map(({ numbers }) => numbers.peak_reserved.reserved_bytes)) * 1.06;
    state.on(`range-${side + 1} at-${side + 1}`, timeline.redraw);
    return timeline;
  });
  const clockSwitch = switchOf("The axis", [["time", "Time", programs.every(({ times }) => times !== null)], ["events", "Events"]], timelines[0].clock,
    name => {
      for (const side of [1, 2]) state.set(`range-${side}`, null);
      state.set("clock", name);
    });
  state.on("clock", () => {
    clockSwitch.show(timelines[0].clock);
    for (const timeline of timelines) timeline.redraw();
  });
  const sides = element("div", { class: "columns", id: "side-by-side" }, timelines.map((timeline, side) => {
    const { numbers } = timeline.program;
    return panel(`side-${side + 1}`, `${side === 0 ? "First" : "Second"}: ${numbers.file.split("/").pop()}`, element("span", { class: "quiet" },
      numbers.origin === "happened" ? "as it happened" : "simulated"), timeline.stage, timeline.whole);
  }));
  const [first, second] = timelines;
  const box = element("input", { type: "checkbox", id: "overlay", onchange: () => state.set("overlay", box.checked ? null : "hidden") });
  const showOverlay = () => {
    box.checked = state.get("overlay") !== "hidden";
    first.overlaid = box.checked ? second : null;
    first.redraw();
  };
  state.on("overlay", showOverlay);
  showOverlay();
  const overlay = element("label", { class: "overlay" }, box, swatch("overlaid"), "in use in the second, stretched to the length of the first");
  const pictures = [element("div", { class: "beside" }, clockSwitch, overlay), sides];
  comparisonPage(about.comparison, state, menu, pictures, by => {
    const grouping = BY.some(([name]) => name === by) ? by : about.by;
    for (const timeline of timelines) {
      timeline.program.showOnly(null);
      timeline.program.groupBy(grouping);
      timeline.redraw();
    }
  });
}
