// The search, which leads from one block that fits to the next and hides none.

class FindBar {
  /** `change(text)` is called with each text that is entered, `go(block)` with the block to show. */
  constructor(program, change, go) {
    this.program = program;
    this.go = go;
    this.matches = [];
    this.input = element("input", {
      id: "find", type: "search", placeholder: "as in the filter", "aria-describedby": "find-result", autocomplete: "off", spellcheck: "false",
      title: "Enter: the next block that matches (n). Shift and Enter: the previous one (N).", oninput: once(() => change(this.input.value)),
    });
    this.input.addEventListener("keydown", event => {
      if (event.key !== "Enter") return;
      event.preventDefault();
      this.step(event.shiftKey ? -1 : 1, this.moment);
    });
    this.result = element("span", { id: "find-result", "aria-live": "polite" });
    const button = (id, text, label, step) => element("button", { type: "button", class: "button small", id, "aria-label": label, title: label,
      onclick: () => this.step(step, this.moment) }, text);
    this.element = element("div", { class: "filter-bar", role: "search" },
      element("label", { for: "find" }, "Find"), this.input,
      element("div", { class: "buttons" }, button("find-previous", "‹", "The previous match (N)", -1), button("find-next", "›", "The next match (n)", 1)),
      this.result);
  }

  /** Looks for the blocks that fit among those that are shown. `moment` is the pinned one. */
  show(text, moment) {
    const { program } = this;
    this.moment = moment;
    if (this.input.value !== text) this.input.value = text;
    const made = filterOf(text, program.numbers.has_times);
    this.matches = [];
    if (!made.isEmpty) {
      for (let block = 0; block < program.asked.length; block++) {
        if ((!program.mask || program.mask[block]) && made.test(program.subject(block, moment))) this.matches.push(block);
      }
    }
    this.input.setAttribute("aria-invalid", String(made.error !== null));
    this.result.classList.toggle("wrong", made.error !== null);
    this.error = made.error;
    this.tell();
  }

  /** Follows the pinned moment. */
  at(moment) {
    this.moment = moment;
    this.tell();
  }

  tell() {
    const place = this.matches.findIndex(block => this.program.from[block] + 1 === this.moment);
    const all = countText(this.matches.length);
    const count = place < 0 ? `${all} ${this.matches.length === 1 ? "match" : "matches"}` : `${countText(place + 1)} of ${all}`;
    this.result.textContent = this.error ?? (this.input.value.trim() === "" ? "" : count);
  }

  /** Leads to the next block that is allocated after the pinned moment, or to the previous one before it, and around the end. */
  step(step, moment) {
    const { matches, program } = this;
    if (matches.length === 0) return this.input.focus();
    const allocated = block => program.from[block] + 1;
    const found = step > 0 ? matches.find(block => allocated(block) > moment) ?? matches[0]
      : matches.findLast(block => allocated(block) < moment) ?? matches.at(-1);
    return this.go(found);
  }
}
