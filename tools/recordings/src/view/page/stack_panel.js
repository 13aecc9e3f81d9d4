// The panel of call stacks: what is in use at the pinned moment or at the peak, by the lines that asked for it.

const STACK_VIEWS = [["flame", "Flame graph"], ["tree", "Tree"]];
const STACK_TIMES = [["pinned", "Pinned moment"], ["peak", "Peak"]];

class StackPanel {
  constructor(program, state) {
    this.program = program;
    this.state = state;
    this.tree = new StackTree(program);
    this.flame = new FlameGraph(this.tree);
    this.list = new StackList(this.tree);
    this.moment = element("span", { id: "stacks-moment" });
    const choose = (label, key, choices, value) => switchOf(label, choices, value, chosen => state.set(key, chosen === choices[0][0] ? null : chosen));
    this.views = choose("Show stacks as", "stacks", STACK_VIEWS, this.view);
    this.times = choose("Show stacks at", "stacks-at", STACK_TIMES, this.time);
    this.element = panel("stacks", "Call stacks", [this.moment, this.times, this.views], this.flame.element, this.list.element);
  }

  get view() {
    return this.state.get("stacks") === "tree" ? "tree" : "flame";
  }

  get time() {
    return this.state.get("stacks-at") === "peak" ? "peak" : "pinned";
  }

  /** Shows the blocks that are in use at the peak, or at the pinned moment. */
  show(pinned) {
    const { program } = this;
    const moment = this.time === "peak" ? program.numbers.peak_active.moment : pinned;
    this.views.show(this.view);
    this.times.show(this.time);
    const sums = this.tree.sum(program.blocksAt(moment));
    this.moment.textContent = `${bytesText(sums.bytes[0])} at ${program.momentText(moment, "events")}`;
    Object.assign(this.element.dataset, { moment, bytes: sums.bytes[0], blocks: sums.counts[0] });
    const isTree = this.view === "tree";
    this.flame.element.hidden = isTree;
    this.list.element.hidden = !isTree;
    (isTree ? this.list : this.flame).show(sums);
  }
}

/** A stack as text, with a button that copies it. */
function wholeStack(frames) {
  const text = frames.join("\n");
  const box = element("pre", { id: "block-stack", class: "whole-name", tabindex: "0", "aria-label": "The call stack of its request, innermost frame first" }, text);
  const copy = element("button", { type: "button", class: "button small", id: "copy-stack", onclick: () => {
    // Some browsers do not let a page from the disk write to the clipboard: the text is selected, for Ctrl C.
    getSelection().selectAllChildren(box);
    copy.textContent = "Selected: press Ctrl C";
    navigator.clipboard?.writeText(text).then(() => (copy.textContent = "Copied"), () => {});
  } }, "Copy");
  return [element("div", { class: "pinned-head" }, element("h3", {}, counted(frames.length, "frame")), copy), box];
}
