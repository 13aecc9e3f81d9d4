// A range of events that is selected on memory over time, and its sums.

/** The two moments of a selection that an address names: from the first to the second; null for none. */
function selectionOf(text, moments) {
  const [from, to] = (text ?? "").split("~").map(Number);
  return from >= 0 && from < to && to <= moments ? [from, to] : null;
}

/** What happens to the blocks that are shown after one moment and up to another: of all, and of each row of the grouping. */
function sumsBetween(program, from, to) {
  const rows = program.rows.map(({ name }, number) => ({ name, number, allocated: 0, allocations: 0, freed: 0, frees: 0, now: 0, peak: 0 }));
  const isShown = block => !program.mask || program.mask[block];
  for (const block of program.blocksAt(from)) if (isShown(block)) rows[program.numberOf[block]].now += program.asked[block];
  for (const row of rows) row.peak = row.now;
  for (const block of program.block.subarray(from, to)) {
    const of = block < 0 ? ~block : block;
    if (!isShown(of)) continue;
    const row = rows[program.numberOf[of]];
    const bytes = program.asked[of];
    if (block < 0) {
      row.freed += bytes;
      row.frees++;
      row.now -= bytes;
    } else {
      row.allocated += bytes;
      row.allocations++;
      row.now += bytes;
      row.peak = Math.max(row.peak, row.now);
    }
  }
  const sum = field => rows.reduce((sum, row) => sum + row[field], 0);
  const [allocated, allocations, freed, frees] = ["allocated", "allocations", "freed", "frees"].map(sum);
  return { allocated, allocations, freed, frees, peak: program.shownPeaks.between(from, to), rows: rows.filter(row => row.peak > 0) };
}

class SelectionPanel {
  /** `pin(moment)` pins a moment, `zoom()` shows only the range, `close()` ends the selection. */
  constructor(program, pin, zoom, close) {
    this.program = program;
    this.pin = pin;
    const amount = (title, of) => ({ title, number: true, value: of, text: row => bytesText(of(row)) });
    const count = (title, of) => ({ title, number: true, value: of, text: row => countText(of(row)) });
    this.table = new SortedTable("The selected events, by group", [
      { title: "Name", value: row => row.name, cell: row =>
        element("span", { class: "named" }, swatch(program.seriesOf[row.number]), nameText(row.name)) },
      amount("Allocated", row => row.allocated), count("Blocks", row => row.allocations),
      amount("Released", row => row.freed), count("Blocks", row => row.frees),
      { title: "Change", number: true, value: row => row.allocated - row.freed, text: row => differenceText([row.freed, row.allocated]) },
      amount("Peak", row => row.peak),
    ], 1);
    this.title = element("p", { class: "pinned-title", "aria-live": "polite" });
    this.figures = element("div");
    const button = (id, text, title, act) => element("button", { type: "button", class: "button small", id, title, onclick: act }, text);
    this.element = element("div", { id: "selection", class: "pinned", hidden: true },
      element("div", { class: "pinned-head" }, this.title, element("div", { class: "buttons" },
        button("selection-zoom", "Zoom in", "Show only these events (z)", zoom), button("selection-close", "Close", "Select nothing (Escape)", close))),
      this.figures, this.table.element);
  }

  fill(selection) {
    this.element.hidden = selection === null;
    if (selection === null) return;
    const { program } = this;
    const [from, to] = selection;
    const sums = sumsBetween(program, from, to);
    const span = program.times ? `, ${timeText(program.place(to, "time") - program.place(from, "time"))}` : "";
    this.title.textContent = `Events ${countText(from + 1)} to ${countText(to)}${span}`;
    this.figures.replaceChildren(figures([
      ["allocated", `${bytesText(sums.allocated)} in ${counted(sums.allocations, "block")}`, "selection-allocated"],
      ["released", `${bytesText(sums.freed)} in ${counted(sums.frees, "block")}`, "selection-released"],
      ["in use, before and after", `${bytesText(program.shown[from])} → ${bytesText(program.shown[to])}`, "selection-in-use"],
      ["peak", element("span", {}, `${bytesText(program.shown[sums.peak])} at `, momentButton(program, sums.peak, this.pin)), "selection-peak"],
    ]));
    this.table.show(sums.rows);
  }
}
