// The cause of an out-of-memory failure.

const MOST_LISTED = 50;

const REMEDIES = {
  never_fits: "No device memory can be freed that would help: the block itself is too large.",
  limited: "A limit that the program set is reached, not the device's.",
  fragmented: "There are enough free bytes, but in pieces that are each too small, with blocks in use between them.",
  pending: "There are enough free bytes, but commands that are under way may still use them.",
  viewed: "Enough bytes were given back, but regions, images or maps of them are left.",
  device_full: "What is in use leaves no room for the request.",
};

/** A bar of the whole capacity, and below it the request, to the same scale. `parts` are [bytes, series or state, name]. */
function capacityBars(failed, parts) {
  const known = parts.reduce((sum, [bytes]) => sum + bytes, 0);
  const whole = Math.max(failed.capacity_bytes, known, failed.class_bytes);
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
    row("the memory", all, bytesText(failed.capacity_bytes)),
    row("asked for", wide(failed.class_bytes, "asked"), bytesText(failed.class_bytes)),
    row("largest free block", wide(failed.largest_held_bytes, "held"), bytesText(failed.largest_held_bytes)));
}

/** The blocks whose end would have made room, and who holds the most. `pick(block)` is called with a block that is clicked. */
function roomLists(failed, segmentName, pick) {
  const { cheapest, holds_most: most } = failed;
  const line = ({ block, offset, bytes, group }) => {
    const name = group ?? "(no group)";
    return element("li", {},
      block === null ? element("span", { class: "name" }, name)
        : element("button", { type: "button", class: "link name", title: name, onclick: () => pick(block) }, name),
      element("span", { class: "quiet number" }, `from byte ${countText(offset)} on`), element("span", { class: "number" }, bytesText(bytes)));
  };
  const room = cheapest === null
    ? element("p", { id: "room" }, `No segment is large enough for a block of ${bytesText(failed.class_bytes)}, whatever ends.`)
    : element("p", { id: "room" }, `The fewest bytes: ${counted(cheapest.blocks.length, "block")} of ${bytesText(cheapest.bytes)} `,
      cheapest.blocks.length === 1 ? "" : "together, next to each other ", `in ${segmentName(cheapest.segment)}. `,
      `Then ${bytesText(cheapest.room_bytes)} are free there in one piece: the red frame on the map.`);
  return element("div", { class: "columns" },
    element("div", {}, element("h3", {}, "Which blocks would have to end"), room,
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

/** `parts` are the contents of the memory, the largest first: [bytes, series or state, name]. */
function shortagePanel(failed, parts, where, rooms) {
  const asked = failed.class_bytes === failed.requested_bytes
    ? bytesText(failed.requested_bytes)
    : `${bytesText(failed.requested_bytes)} (a block of ${bytesText(failed.class_bytes)})`;
  const names = parts.filter(([bytes]) => bytes > 0).map(([bytes, series, name]) => element("li", {},
    swatch(series), element("span", { class: "name" }, name), element("span", { class: "number" }, bytesText(bytes))));
  const made = panel("shortage", "Out of memory", element("span", { class: "badge" }, failed.verdict.replaceAll("_", " ")),
    element("p", { class: "verdict" }, element("strong", { id: "verdict" }, `${asked} could not be allocated: ${failed.reason}.`),
      ` ${REMEDIES[failed.verdict] ?? ""}`),
    where ? element("p", { class: "quiet where" }, where) : null,
    capacityBars(failed, parts),
    element("div", { class: "columns" },
      element("div", {}, element("h3", {}, "What filled the memory"), element("ul", { class: "top", id: "shortage-parts" }, names)),
      element("div", {}, element("h3", {}, "The numbers of the pool"), figures([
        ["asked for", bytesInFull(failed.requested_bytes), "shortage-requested"],
        failed.group ? ["for", failed.group, "shortage-group"] : null,
        failed.stream != null ? ["stream", String(failed.stream), "shortage-stream"] : null,
        ["in use", bytesInFull(failed.active_bytes), "shortage-active"],
        ["free in the pool", bytesInFull(failed.held_bytes), "shortage-held"],
        ["largest free piece", bytesInFull(failed.largest_held_bytes), "shortage-largest"],
        ["free, but commands may use it", bytesInFull(failed.pending_bytes), "shortage-pending"],
        ["released for it, not enough", bytesInFull(failed.released_bytes), "shortage-released"],
        ["capacity", bytesInFull(failed.capacity_bytes), "shortage-capacity"],
        ["largest possible block", bytesInFull(failed.largest_block_bytes), "shortage-block"],
      ].filter(Boolean)))),
    rooms,
    element("p", { class: "advice" }, element("strong", {}, "What to do: "), element("span", { id: "advice" }, failed.advice), "."));
  made.classList.add("danger");
  return made;
}
