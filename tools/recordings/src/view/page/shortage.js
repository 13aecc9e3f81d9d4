// The cause of an out-of-memory failure.

const MOST_LISTED = 50;

/**
 * The request that the page explains, with the moment in which it failed, and whether the capacity in its figures is what it ran into: that of
 * the replay, or the first of the recording. Null where none failed.
 */
function shortageOf(program) {
  const { out_of_memory: replayed, shortages, origin, allocator, limit_bytes: limit } = program.numbers;
  if (replayed) return { failed: replayed, moment: program.moments, hasCapacity: true, where: replayed.event };
  if (origin !== "happened" || shortages.length === 0) return null;
  const [first] = shortages;
  const more = shortages.length > 1 ? `, the first of ${countText(shortages.length)} failures` : "";
  const about = { moment: first.moment, where: `${program.shortageText(first)}${more}` };
  // What reached a limit in another allocator has the device's capacity, not that limit.
  if (first.report) return { ...about, failed: first.report, hasCapacity: first.report.verdict !== "limited" || allocator === null || limit !== null };
  const at = program.at(first.moment);
  const failed = {
    requested_bytes: first.bytes, class_bytes: first.bytes, group: first.group, stream: first.stream, active_bytes: at.active,
    reserved_bytes: at.reserved, held_bytes: at.held, largest_held_bytes: at.free.largest, capacity_bytes: program.numbers.capacity_bytes,
    device_free_bytes: null, verdict: null, reason: null, advice: null,
  };
  return { ...about, failed, hasCapacity: failed.capacity_bytes > 0 };
}

/** What was asked for, and what there was, in figures that differ: "2.00 MiB", "asked for, 1.98 MiB free of the limit of 8.00 MiB". */
function whyText(failed, hasCapacity) {
  const { requested_bytes: asked, held_bytes: held, capacity_bytes: capacity, device_free_bytes: deviceFree } = failed;
  const left = Math.max(0, capacity - failed.reserved_bytes);
  const both = bytes => (bytesText(asked) === bytesText(bytes) && asked !== bytes
    ? [asked, bytes].map(bytes => `${countText(bytes)}${SPACE}bytes`) : [asked, bytes].map(bytesText));
  const say = (bytes, text) => {
    const [one, other] = both(bytes);
    return [one, `asked for, ${text(other)}`];
  };
  const largest = Math.min(failed.largest_block_bytes || capacity, capacity);
  switch (failed.verdict) {
    case "never_fits": return say(largest, most => `and no block can be larger than ${most}`);
    case "limited": return hasCapacity ? say(left, free => `${free} free of the limit of ${bytesText(capacity)}`)
      : say(failed.reserved_bytes, reserved => `with ${reserved} reserved: more than a limit that the program set`);
    case "fragmented": return say(failed.largest_held_bytes, piece => `${bytesText(held)} free in the pool, but at most ${piece} in one piece`);
    case "pending": return say(failed.pending_bytes, pending => `${pending} free only once pending commands have ended`);
    case "viewed": return say(failed.active_bytes, () => "but blocks that were freed still have regions, images or maps");
    case "device_full": return hasCapacity || deviceFree !== null ? say(deviceFree ?? left, free => `${free} free on the device`)
      : [bytesText(asked), "asked for: the device is full"];
    default: return hasCapacity ? say(left, free => `${free} left of ${bytesText(capacity)}`) : [bytesText(asked), "could not be allocated"];
  }
}

const REMEDIES = {
  never_fits: "Freeing memory does not help: the block itself is too large.",
  limited: "This is a limit that the program set, not the device's capacity.",
  fragmented: "There are enough free bytes, but in pieces that are each too small, with blocks in use between them.",
  pending: "There are enough free bytes, but commands that have not ended may still use them.",
  viewed: "Enough bytes were freed, but regions, images or maps of them still exist.",
  device_full: "What is in use leaves no room for the request.",
};

/**
 * A bar of the whole capacity, or of what was reserved where that is not what the request ran into, and below it the request, to the same
 * scale. `parts` are [bytes, series or state, name].
 */
function capacityBars(failed, parts, hasCapacity) {
  const known = parts.reduce((sum, [bytes]) => sum + bytes, 0);
  const memory = hasCapacity ? failed.capacity_bytes : failed.reserved_bytes;
  const whole = Math.max(memory, known, failed.class_bytes);
  const row = (name, bar, figure) => element("div", { class: "bar-row" },
    element("span", { class: "bar-name" }, name), bar, element("span", { class: "number" }, figure));
  const wide = (bytes, kind) => {
    const bar = element("div", { class: "share thick" }, swatch(kind));
    bar.firstChild.classList.add("part");
    bar.firstChild.style.width = `${Math.min(100, (bytes / whole) * 100)}%`;
    return bar;
  };
  const all = shareBar(parts, whole);
  all.classList.add("thick");
  return element("div", { class: "bars" },
    row(hasCapacity ? "the memory" : "reserved", all, bytesText(memory)),
    row("asked for", wide(failed.class_bytes, "asked"), bytesText(failed.class_bytes)),
    row("largest free block", wide(failed.largest_held_bytes, "held"), bytesText(failed.largest_held_bytes)));
}

/** The blocks that would have made room if they were freed, and who holds the most. `pick(block)` is called with a block that is clicked. */
function roomLists(failed, segmentName, pick) {
  const { cheapest, holds_most: most } = failed;
  // Unknown for later failures, and for those without a report.
  if (cheapest === undefined) return null;
  const line = ({ block, offset, bytes, group }) => {
    const name = group ?? "(not known)";
    return element("li", {},
      block === null ? nameText(name)
        : element("button", { type: "button", class: "link name", onclick: () => pick(block) }, nameText(name)),
      element("span", { class: "quiet number" }, `at byte ${countText(offset)}`), element("span", { class: "number" }, bytesText(bytes)));
  };
  const room = cheapest === null
    ? element("p", { id: "room" }, `No segment is large enough for a block of ${bytesText(failed.class_bytes)}, even if all of it were free.`)
    : element("p", { id: "room" }, `The fewest bytes: ${counted(cheapest.blocks.length, "block")} of ${bytesText(cheapest.bytes)} `,
      cheapest.blocks.length === 1 ? "" : "together, next to each other ", `in ${segmentName(cheapest.segment)}. `,
      `Then ${bytesText(cheapest.room_bytes)} are free there in one piece: the red frame on the map.`);
  return element("div", { class: "columns" },
    element("div", {}, element("h3", {}, "Which blocks would have to be freed"), room,
      element("ul", { class: "top", id: "room-blocks" }, (cheapest?.blocks ?? []).slice(0, MOST_LISTED).map(line)),
      cheapest && cheapest.blocks.length > MOST_LISTED
        ? element("p", { class: "quiet" }, `and ${countText(cheapest.blocks.length - MOST_LISTED)} more`) : null),
    element("div", {}, element("h3", {}, "Who holds the most"), element("p", { id: "holds-most" }, most === null ? "No blocks are known."
      : `${most.name}: ${bytesText(most.bytes)} in ${counted(most.blocks, "block")}.`)));
}

/** The frame on the map around the blocks that would have to end. */
function roomFrames(failed, segmentName) {
  const { cheapest } = failed;
  return cheapest ? [{ name: segmentName(cheapest.segment), offset: cheapest.offset, bytes: cheapest.room_bytes }] : [];
}

/**
 * `parts` are the contents of the memory, the largest first: [bytes, series or state, name]. `hasCapacity` is whether the capacity is what the
 * request ran into.
 */
function shortagePanel(failed, parts, where, rooms, hasCapacity = true) {
  const asked = failed.class_bytes === failed.requested_bytes
    ? bytesText(failed.requested_bytes)
    : `${bytesText(failed.requested_bytes)} (a block of ${bytesText(failed.class_bytes)})`;
  const names = parts.filter(([bytes]) => bytes > 0).map(([bytes, series, name]) => element("li", {},
    swatch(series), nameText(name), element("span", { class: "number" }, bytesText(bytes))));
  const size = (name, field, id) => (failed[field] == null ? null : [name, bytesInFull(failed[field]), `shortage-${id}`]);
  const isForeign = failed.verdict === "limited" && !hasCapacity;
  const made = panel("shortage", "Out of memory", failed.verdict && element("span", { class: "badge" }, failed.verdict.replaceAll("_", " ")),
    element("p", { class: "verdict" }, element("strong", { id: "verdict" },
      `${asked} could not be allocated: ${failed.reason ?? "the recording does not say why"}.`), ` ${REMEDIES[failed.verdict] ?? ""}`),
    isForeign && element("p", { id: "unknown-limit" },
      "The recording does not say how high the limit is (in PyTorch, torch.cuda.set_per_process_memory_fraction sets one): at least ",
      `${bytesText(failed.reserved_bytes)}, which were reserved, and too low for ${bytesText(failed.class_bytes)} more. `,
      failed.device_free_bytes === null ? "" : `The device itself had ${bytesText(failed.device_free_bytes)} free.`),
    where ? element("p", { class: "quiet where" }, where) : null,
    capacityBars(failed, parts, hasCapacity),
    element("div", { class: "columns" },
      element("div", {}, element("h3", {}, "What filled the memory"), element("ul", { class: "top", id: "shortage-parts" }, names)),
      element("div", {}, element("h3", {}, "The numbers of the pool"), figures([
        size("asked for", "requested_bytes", "requested"),
        failed.group ? ["for", failed.group, "shortage-group"] : null,
        failed.stream != null ? ["stream", String(failed.stream), "shortage-stream"] : null,
        size("in use", "active_bytes", "active"),
        size("reserved", "reserved_bytes", "reserved"),
        size("free in the pool", "held_bytes", "held"),
        size("largest free piece", "largest_held_bytes", "largest"),
        size("free, but commands may use it", "pending_bytes", "pending"),
        size("released for it, but not enough", "released_bytes", "released"),
        hasCapacity ? size("capacity", "capacity_bytes", "capacity") : null,
        failed.largest_block_bytes > 0 ? size("largest possible block", "largest_block_bytes", "block") : null,
        size("free on the device, for all programs", "device_free_bytes", "device-free"),
      ].filter(Boolean)))),
    rooms,
    failed.advice && element("p", { class: "advice" }, element("strong", {}, "What to do: "), element("span", { id: "advice" }, failed.advice), "."));
  made.classList.add("danger");
  return made;
}
