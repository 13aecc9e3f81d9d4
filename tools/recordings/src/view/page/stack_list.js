// The bytes in use by call stack, as a list that is opened frame by frame.

class StackList {
  constructor(tree) {
    this.tree = tree;
    this.open = new Set([0]);
    this.element = element("div", { class: "scroll stack-list", id: "stack-list", role: "tree", "aria-label": "Bytes in use by call stack" });
  }

  show(sums) {
    this.sums = sums;
    this.element.replaceChildren(this.branch(0));
  }

  branch(node) {
    const { bytes, counts } = this.sums;
    const below = this.tree.below(node, this.sums);
    const isOpen = this.open.has(node);
    const toggle = () => {
      if (isOpen) this.open.delete(node);
      else this.openFrom(node);
      const fresh = this.branch(node);
      branch.replaceWith(fresh);
      fresh.querySelector("button").focus({ preventScroll: true });
    };
    const head = element("button", { type: "button", class: "stack-row", "data-node": node, "data-bytes": bytes[node], disabled: below.length === 0, onclick: toggle },
      element("span", { class: "stack-sign", "aria-hidden": "true" }, below.length === 0 ? "" : isOpen ? "▾" : "▸"),
      nameText(this.tree.frames[node]),
      element("span", { class: "number" }, percentText(bytes[0] > 0 ? bytes[node] / bytes[0] : 0)),
      element("span", { class: "number" }, bytesText(bytes[node])),
      element("span", { class: "number" }, counted(counts[node], "block")));
    const branch = element("div", { role: "treeitem", "aria-expanded": below.length === 0 ? null : String(isOpen) }, head,
      isOpen && below.length > 0 ? element("div", { role: "group", class: "stack-branch" }, below.map(child => this.branch(child))) : null);
    return branch;
  }

  /** Opens a node, and those below it as long as there is only one way. */
  openFrom(node) {
    for (let next = node; next !== undefined;) {
      this.open.add(next);
      const below = this.tree.below(next, this.sums);
      next = below.length === 1 ? below[0] : undefined;
    }
  }
}
