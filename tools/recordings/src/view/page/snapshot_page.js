// The page of a pool's snapshot: one moment.

const SNAPSHOT_KEYS = [
  ["g", "Group blocks by tag, or by the line that asked for them."],
  ["Tab Home ← → ↑ ↓", "On the map: from block to block. Enter enlarges the segment."],
  ["t", "Light or dark."],
  ["?", "This help."],
];

const SNAPSHOT_BY = [["tag", "Tag"], ["call_site", "Call site"]];
const NAMELESS = { tag: "(no tag)", call_site: "(not known)" };

const STATES = {
  active: "the program has it",
  held: "cached, for the next request of its size class",
  pending: "free, but commands may still use it",
  free: "a free range, for requests of any size class",
  withheld: "not usable until it is filled with zeros, or returned to the device",
};

/** What the page calls a state. All that the pool keeps is held, not only the blocks that are in the state of that name. */
const STATE_NAMES = { active: "in use", held: "ready" };

/** Counters that are left to the answers and to the table of states, which say more about them. */
const TOLD_ELSEWHERE = ["active_blocks", "active_bytes", "held_blocks", "held_bytes", "pending_blocks", "pending_bytes"];

function stateName(state) {
  return STATE_NAMES[state] ?? state;
}

function snapshotPage({ numbers, snapshot }, state) {
  const { settings, statistics } = snapshot;
  const by = () => (SNAPSHOT_BY.some(([name]) => name === state.get("by")) ? state.get("by") : "tag");
  const series = new Map();
  const rowsOf = name => (name === "tag" ? numbers.tags : numbers.call_sites);
  const group = () => {
    series.clear();
    const largest = [...rowsOf(by())].sort((one, other) => other.bytes - one.bytes);
    largest.forEach((row, place) => series.set(row.name, Math.min(place, SERIES)));
  };
  const seriesOf = block => series.get(block[by()] ?? NAMELESS[by()]) ?? SERIES;

  const map = new MapWithLens((segment, range) => ({ title: `${bytesText(range.bytes)} ${stateName(range.state)}`, rows: blockRows(segment, range) }));
  const amount = (title, of) => ({ title, number: true, value: of, text: row => bytesText(of(row)) });
  const columns = named => [
    named,
    amount("Takes", row => row.bytes), { ...amount("Asked for", row => row.requested_bytes), text: row => (row.requested_bytes > 0 ? bytesText(row.requested_bytes) : "–") },
    { title: "Blocks", number: true, value: row => row.blocks, text: row => countText(row.blocks) },
    { title: "Oldest", number: true, value: row => row.oldest_ns ?? -1, text: row => (row.oldest_ns == null ? "–" : timeText(row.oldest_ns)) },
  ];
  const name = kind => ({ title: "Name", value: row => row.name, cell: row => element("span", { class: "named" },
    swatch(kind(row)), nameText(row.name)) });
  const groups = new SortedTable("Active blocks", columns(name(row => series.get(row.name) ?? SERIES)), 1);
  const states = new SortedTable("Blocks by state", columns({ title: "State", value: row => row.name, cell: row => element("span", { class: "named" },
    swatch(row.name === "active" ? "live" : row.name), element("span", { class: "name" }, `${stateName(row.name)}: ${STATES[row.name] ?? ""}`)) }), 1);
  const bySwitch = switchOf("Group blocks by", SNAPSHOT_BY, by(), value => state.set("by", value));
  const help = helpDialog(SNAPSHOT_KEYS, WORDS);
  const answers = element("div", { class: "answers" });
  const shortage = element("div", { class: "slot" });
  const unlisted = numbers.active_bytes > 0 && numbers.tags.length === 0;
  const taken = new Date(snapshot.unix_time_ms);
  const when = Number.isNaN(taken.getTime()) ? null : `${taken.toISOString().slice(0, 19).replace("T", " ")} UTC`;
  document.getElementById("page").replaceChildren(
    head(state, numbers.file.split("/").pop(), ["a snapshot", settings.device, when], help),
    element("main", {},
      answers, shortage,
      panel("moment-panel", "Memory map", bySwitch,
        unlisted ? element("p", { class: "quiet" }, "Blocks in use are listed only by a pool that watches them (", element("code", {}, "MemoryPool::watch"), ").") : null,
        element("div", { class: "with-aside" }, element("div", {}, map.element, mapKey(...["held", "pending", "free", "withheld"].map(state => [state, stateName(state)]))),
          element("div", { class: "aside" }, figures([
            ["segments", countText(snapshot.segments.length), "segments"],
            ["blocks outside segments", countText(snapshot.blocks.length)],
            ...freeRows({ bytes: numbers.free.bytes, largest: numbers.free.largest_bytes, ranges: numbers.free.ranges }),
          ])))),
      panel("groups", "Who uses it", element("span", { class: "quiet" }, "Click a title to sort."), groups.element),
      panel("states", "Blocks by state", null, states.element),
      element("div", { class: "columns" },
        panel("counters", "Counters", null, figures(plainRows(statistics, TOLD_ELSEWHERE))),
        panel("settings", "Settings", null, figures(plainRows(settings))))),
    help, tooltip.box);

  const segmentName = segment => `segment ${snapshot.segments[segment].memory}`;
  const show = () => {
    group();
    bySwitch.show(by());
    answers.replaceChildren(...snapshotAnswers(numbers, statistics, series, rowsOf(by())));
    if (numbers.out_of_memory) {
      shortage.replaceChildren(shortagePanel(numbers.out_of_memory, snapshotParts(numbers, series, rowsOf(by())), null,
        roomLists(numbers.out_of_memory, segmentName, () => {})));
    }
    map.show({ segments: segmentsOf(snapshot, seriesOf), free: numbers.free },
      numbers.out_of_memory ? roomFrames(numbers.out_of_memory, segmentName) : []);
    groups.show(rowsOf(by()));
    states.show(numbers.states);
  };
  state.on("by", show);
  followTheme(state, show);
  show();
  listenToKeys(state, {
    g: () => state.set("by", by() === "tag" ? "call_site" : "tag"),
    t: () => document.getElementById("theme").click(),
    "?": () => openHelp(help),
  });
  ready();
}

/** The segments. Each block outside of a segment counts as a segment of one range. */
function segmentsOf(snapshot, seriesOf) {
  const of = range => ({ ...range, series: seriesOf(range) });
  const segments = snapshot.segments.map(segment => ({
    name: `segment ${segment.memory}`, bytes: segment.bytes, ranges: segment.ranges.map(of),
  }));
  const blocks = snapshot.blocks.map((block, place) => ({
    name: `block ${place + 1}, by itself`, bytes: block.bytes, ranges: [{ ...of(block), offset: 0 }],
  }));
  return [...segments, ...blocks].filter(segment => segment.bytes > 0 && segment.ranges.length > 0);
}

function blockRows(segment, range) {
  return [
    ["state", STATES[range.state] ?? range.state],
    range.requested_bytes == null ? null : ["asked", bytesInFull(range.requested_bytes)],
    ["takes", bytesInFull(range.bytes)],
    range.tag == null ? null : ["tag", range.tag],
    range.call_site == null ? null : ["asked for at", range.call_site],
    range.queue == null ? null : ["queue", String(range.queue)],
    range.age_ns == null ? null : ["age", timeText(range.age_ns)],
    ["place", `${segment.name}, at byte ${countText(range.offset)}`],
  ].filter(Boolean);
}

function snapshotParts(numbers, series, rows) {
  const parts = rows.filter(row => series.get(row.name) < SERIES).map(row => [row.bytes, series.get(row.name), row.name]);
  const others = rows.filter(row => series.get(row.name) >= SERIES);
  parts.push([others.reduce((sum, row) => sum + row.bytes, 0), SERIES, counted(others.length, "other")]);
  const known = rows.reduce((sum, row) => sum + row.bytes, 0);
  parts.push([Math.max(0, numbers.active_bytes - known), "live", "in use, not listed"]);
  parts.sort(([one], [other]) => other - one);
  return [...parts, [numbers.held_bytes, "held", "held by the pool, free"]].filter(([bytes]) => bytes > 0);
}

function snapshotAnswers(numbers, statistics, series, rows) {
  const parts = snapshotParts(numbers, series, rows);
  const used = parts.filter(([, kind]) => kind !== "held");
  const line = ([bytes, kind, name]) => element("li", {}, swatch(kind), nameText(name),
    element("span", { class: "number" }, bytesText(bytes)));
  const failed = numbers.out_of_memory;
  return [
    answer("used", "What is using my memory?", "plain", bytesText(numbers.active_bytes), `in use, in ${counted(numbers.active_blocks, "block")}`,
      shareBar(used, used.reduce((sum, [bytes]) => sum + bytes, 0)), element("ul", { class: "top" }, used.slice(0, 3).map(line))),
    ranOutBefore(numbers, statistics, failed),
    answer("leaked", "Is it leaked, or cached?", "plain", bytesText(numbers.held_bytes), "held by the pool: cached, not leaked",
      shareBar([[numbers.active_bytes, "live", "in use"], [numbers.held_bytes, "held", "held"]], Math.max(1, numbers.active_bytes + numbers.held_bytes)),
      element("ul", { class: "top" }, line([numbers.active_bytes, "live", "in use: needed, or leaked"]),
        line([numbers.held_bytes, "held", "held by the pool: cached, not leaked"])),
      element("p", {}, numbers.pending_bytes > 0 ? `Commands may still use ${bytesText(numbers.pending_bytes)} of the held memory. ` : "",
        "The pool uses held memory for later requests, and a trim returns it to the device. Old blocks in use may be leaked: sort by “Oldest”.")),
  ];
}

/** Why memory ran out, or did so before the snapshot was taken, or how much is left. */
function ranOutBefore(numbers, statistics, failed) {
  if (failed) {
    return answer("ran-out", "Why did I run out?", "bad", ...whyText(failed, true),
      element("p", {}, `For ${failed.group ?? "a block"}: ${failed.reason}.`));
  }
  const reserved = element("p", {}, `${bytesText(numbers.reserved_bytes)} of ${bytesText(numbers.capacity_bytes)} are reserved.`);
  const times = statistics.out_of_memory ?? 0;
  if (times > 0) {
    return answer("ran-out", "Why did I run out?", "bad", counted(times, "request"), "failed before this snapshot was taken", reserved,
      element("p", {}, "The reason is in the error of each. A program in Rust can have a snapshot written at that moment: ",
        element("code", {}, "PoolOptions::snapshot_at_out_of_memory")));
  }
  return answer("ran-out", "How close was I to running out?", "good", bytesText(Math.max(0, numbers.capacity_bytes - numbers.reserved_bytes)),
    "to spare: no request has failed", reserved);
}

/** An object's fields, in words, without those in `left`. Fields whose names end in `bytes` are sizes. */
function plainRows(fields, left = []) {
  return Object.entries(fields).filter(([name]) => !left.includes(name)).map(([name, value]) => {
    const isSize = name.endsWith("_bytes");
    const text = typeof value !== "number" ? String(value).replaceAll("_", " ") : isSize ? bytesText(value) : countText(value);
    return [name.replaceAll("_", " "), text];
  });
}
