// Elements. Names come from programs, so they are put into the page as text, never as HTML.

/** An element with these attributes and children. `on…` are listeners, `class` is a class. */
function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (value === true) made.setAttribute(name, "");
    else if (value !== false && value != null) made.setAttribute(name, value);
  }
  made.append(...children.flat(Infinity).filter(child => child != null && child !== false));
  return made;
}

/** What is meant by names that are not the program's own. */
const MEANINGS = {
  "(backward pass?)": "Requests of threads that do not run Python, such as those of PyTorch's backward pass. Frames of C++ were not recorded.",
};

/** A name in full, with its meaning where it has one of its own. */
function titleOf(name) {
  return MEANINGS[name] ? `${name}\n${MEANINGS[name]}` : name;
}

/** A name, and the whole of it as its title. Where there is little room, its folder is cut first, and its file and line last. */
function nameText(name, title = titleOf(name)) {
  const [, before, folder, file, after] = name.match(/^(.* at )?(\S{2,}\/)(\S*)(.*)$/s) ?? [];
  if (folder === undefined) return element("span", { class: "name", title }, name);
  return element("span", { class: "name parted", title },
    before && element("span", {}, before), element("span", { class: "folder" }, folder),
    element("span", { class: "file" }, file), after && element("span", {}, after));
}

/** A panel of the page, with a heading and the elements beside it. */
function panel(id, heading, beside, ...children) {
  return element("section", { id, class: "panel", "aria-labelledby": `${id}-heading` },
    element("header", { class: "panel-head" },
      element("h2", { id: `${id}-heading` }, heading),
      element("div", { class: "beside" }, beside)),
    ...children);
}

/** Buttons of which one is pressed. `choices` are [value, text, whether it can be chosen]. */
function switchOf(label, choices, chosen, choose) {
  const buttons = choices.map(([value, text, possible = true]) => element("button", {
    type: "button", role: "radio", "data-value": value, disabled: !possible,
    title: possible ? null : "This trace does not have that.",
    onclick: () => choose(value),
  }, text));
  const group = element("div", { class: "switch", role: "radiogroup", "aria-label": label }, buttons);
  group.addEventListener("keydown", event => {
    const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    if (!step) return;
    event.preventDefault();
    event.stopPropagation();
    const open = buttons.filter(button => !button.disabled);
    const next = open[(open.indexOf(document.activeElement) + step + open.length) % open.length];
    next.focus();
    next.click();
  });
  group.show = value => {
    for (const button of buttons) {
      const on = button.dataset.value === value;
      button.setAttribute("aria-checked", on);
      button.tabIndex = on ? 0 : -1;
    }
  };
  group.show(chosen);
  return group;
}

/** A canvas as large as its box, and sharp on every screen. Calls `draw(context, width, height)`, sizes in CSS pixels. */
function sharpCanvas(canvas, draw) {
  const redraw = () => {
    const { width, height } = canvas.getBoundingClientRect();
    if (width < 1 || height < 1) return;
    const ratio = window.devicePixelRatio || 1;
    const [w, h] = [Math.round(width * ratio), Math.round(height * ratio)];
    if (canvas.width !== w || canvas.height !== h) [canvas.width, canvas.height] = [w, h];
    const context = canvas.getContext("2d");
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.clearRect(0, 0, width, height);
    draw(context, width, height);
  };
  new ResizeObserver(redraw).observe(canvas);
  return redraw;
}

/** Runs `work` once before the next frame, however often it is requested. */
function once(work) {
  let waiting = false;
  return () => {
    if (waiting) return;
    waiting = true;
    requestAnimationFrame(() => {
      waiting = false;
      work();
    });
  };
}

const tooltip = {
  box: element("div", { id: "tooltip", role: "tooltip", hidden: true }),
  /** Shows `title` and rows of [what, value] beside a point of the window. */
  show(x, y, title, rows, color) {
    const head = element("p", { class: "tip-title" }, color ? swatch(color) : null, title);
    const list = rows.map(([what, value]) => [element("dt", {}, what), element("dd", {}, value)]);
    this.box.replaceChildren(head, element("dl", {}, list));
    this.box.hidden = false;
    const { width, height } = this.box.getBoundingClientRect();
    const right = x + 16 + width < window.innerWidth ? x + 16 : Math.max(4, x - 16 - width);
    const down = y + 16 + height < window.innerHeight ? y + 16 : Math.max(4, y - 16 - height);
    this.box.style.left = `${right}px`;
    this.box.style.top = `${down}px`;
  },
  hide() {
    this.box.hidden = true;
  },
};
