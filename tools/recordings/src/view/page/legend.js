// The meanings of the colours, and the bytes of each at a moment.

class Legend {
  /**
   * `focus(series)` is called with the series under the pointer; null for none. `isolate(series)` is called with one that is
   * clicked. `toggle()` shows or hides the reserved bytes.
   */
  constructor(focus, isolate, toggle) {
    this.focus = focus;
    this.isolate = isolate;
    this.toggle = toggle;
    this.title = element("p", { class: "legend-title", id: "legend-moment" });
    this.list = element("ul", { class: "legend" });
    this.element = element("div", { class: "aside" }, this.title, this.list);
  }

  /** A line for each series that is not empty, the topmost first, as in the picture; none where that shows no series. */
  build(program, isolated, showsSeries) {
    const shown = showsSeries ? program.series.map((_, series) => series) : [];
    if (showsSeries && program.others > 0) shown.push(SERIES);
    this.values = [];
    const lines = shown.reverse().map(series => {
      const value = element("span", { class: "number" });
      this.values[series] = value;
      return element("li", {}, element("button", {
        type: "button", title: `${titleOf(program.seriesName(series))}\nClick: show only this; again: show all.`,
        "aria-pressed": isolated === null ? null : String(isolated === series), onclick: () => this.isolate(series),
        onpointerenter: () => this.focus(series), onpointerleave: () => this.focus(null),
        onfocus: () => this.focus(series), onblur: () => this.focus(null),
      }, swatch(series), nameText(program.shortName(series), null), value));
    });
    const parts = (id, kind, name) => [
      kind ? swatch(kind) : null, element("span", { class: "name" }, name), element("span", { class: "number", id })];
    this.reserved = element("button", { type: "button", title: "Show what is reserved, or hide it (r)", onclick: this.toggle },
      parts("legend-reserved", "line", "reserved"));
    this.list.replaceChildren(element("li", { class: "sum" }, this.reserved),
      element("li", { class: "sum" }, parts("legend-active", null, "in use")), ...lines);
  }

  show(program, moment, clock, hidesReserved) {
    this.reserved.setAttribute("aria-pressed", !hidesReserved);
    this.title.textContent = `At ${program.momentText(moment, clock)}`;
    document.getElementById("legend-reserved").textContent = bytesText(program.reserved[moment]);
    document.getElementById("legend-active").textContent = bytesText(program.active[moment]);
    const stack = program.stackAt(moment);
    this.values.forEach((value, series) => {
      value.textContent = bytesText(stack[series]);
      value.closest("li").classList.toggle("none", stack[series] === 0);
    });
  }
}
