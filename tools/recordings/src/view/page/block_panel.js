// The block that a click has pinned, with its whole name and call stack as text that can be selected.

class BlockPanel {
  /** `show(from, to)` shows a part of the timeline; `close()` unpins the block. */
  constructor(program, show, close) {
    this.program = program;
    this.show = show;
    this.close = close;
    this.element = element("div", { id: "block", class: "pinned", hidden: true });
  }

  fill(block, moment) {
    this.element.hidden = block === null;
    if (block === null) return this.element.replaceChildren();
    const { program } = this;
    const name = program.nameOf(block);
    const [from, to] = [program.from[block] + 1, Math.min(program.to[block] + 1, program.moments)];
    const segment = program.segment[block];
    const button = (id, text, act) => element("button", { type: "button", class: "button small", id, onclick: act }, text);
    const stack = program.stackOf(block);
    const rows = program.lifeOf(block, moment).filter(([what]) => what !== "group");
    return this.element.replaceChildren(...[
      element("div", { class: "pinned-head" },
        element("p", { class: "pinned-title" }, swatch(program.seriesOf[program.numberOf[block]]), ` Block ${countText(block + 1)}`),
        element("div", { class: "buttons" },
          button("block-life", "Show its life", () => this.show(from, to)),
          button("block-close", "Close", this.close))),
      element("pre", { id: "block-name", class: "whole-name", tabindex: "0", "aria-label": "The name of its group" }, name),
      stack.length > 0 ? wholeStack(stack) : null,
      figures([...rows, ["place", segment === 0 ? "no memory" : `segment ${segment}, at byte ${countText(program.offset[block])}`]]
        .map(([what, value]) => [what, value, `block-${what}`])),
    ].flat().filter(Boolean));
  }
}
