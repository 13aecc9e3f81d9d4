// The filter: a line of text that says which blocks are shown.

class FilterBar {
  /** `change(text)` is called with each text that is entered. */
  constructor(change) {
    this.input = element("input", {
      id: "filter", type: "search", placeholder: "name  >1MiB  life<5ms  age>2s  stream=1", "aria-describedby": "filter-result",
      autocomplete: "off", spellcheck: "false", oninput: once(() => change(this.input.value)),
    });
    this.result = element("span", { id: "filter-result", "aria-live": "polite" });
    this.element = element("div", { class: "filter-bar", role: "search" },
      element("label", { for: "filter" }, "Show only"), this.input, this.result);
  }

  /** Shows the text of the filter, and how many blocks it leaves of all, or what is wrong with it. */
  show(text, error, shown, all) {
    if (this.input.value !== text) this.input.value = text;
    this.input.setAttribute("aria-invalid", String(error !== null));
    this.result.textContent = error ?? (shown === all ? "" : `${countText(shown)} of ${counted(all, "block")}`);
    this.result.classList.toggle("wrong", error !== null);
  }
}
