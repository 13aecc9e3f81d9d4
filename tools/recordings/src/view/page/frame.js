// The parts of all pages: the head, the theme, the keys and their help.

function chosenTheme(state) {
  const named = state.get("theme");
  if (named === "dark" || named === "light") return named;
  return matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
}

/** Follows the address and the system; `redraw` draws again the parts with colours of their own. */
function followTheme(state, redraw) {
  const apply = () => {
    document.documentElement.dataset.theme = chosenTheme(state);
    redraw();
  };
  state.on("theme", apply);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", apply, { signal: state.signal });
}

/** `menu` is an element beside the buttons, or null. */
function head(state, title, facts, help, menu = null) {
  document.title = `${title} – binpool view`;
  const toggle = () => state.set("theme", theme() === "dark" ? "light" : "dark");
  return element("header", { class: "head" },
    element("div", {},
      element("h1", {}, element("span", { class: "brand" }, "binpool view"), element("span", { id: "title" }, title)),
      element("p", { class: "quiet" }, facts.filter(Boolean).join(" · "))),
    element("div", { class: "head-buttons" }, menu,
      element("button", { type: "button", class: "button", id: "theme", onclick: toggle, title: "Light or dark (t)" },
        element("span", { "aria-hidden": "true" }, "◐"), " Theme"),
      element("button", { type: "button", class: "button", id: "help-button", onclick: () => openHelp(help), title: "Keys (?)" },
        element("span", { "aria-hidden": "true" }, "?"), " Help")));
}

/** Opens the help at its beginning, wherever it was left. */
function openHelp(dialog) {
  dialog.showModal();
  dialog.scrollTop = 0;
}

/** A dialog with the keys, as [keys, action], and the meanings of the words. */
function helpDialog(keys, words) {
  const dialog = element("dialog", { id: "help", "aria-labelledby": "help-heading" },
    // The focus of a dialog goes to its first button, which is at its end and would be scrolled to.
    element("h2", { id: "help-heading", tabindex: "-1", autofocus: true }, "Keys and words"),
    element("dl", { class: "keys" }, keys.map(([names, text]) => [
      element("dt", {}, names.split(" ").map(name => element("kbd", {}, name))), element("dd", {}, text)])),
    element("dl", { class: "words" }, words.map(([word, text]) => [element("dt", {}, word), element("dd", {}, text)])),
    element("form", { method: "dialog" }, element("button", { class: "button" }, "Close")));
  dialog.addEventListener("click", event => event.target === dialog && dialog.close());
  return dialog;
}

const WORDS = [
  ["in use", "The program has these blocks. Their sizes are the requested ones."],
  ["held", "The pool keeps this memory for later requests. It is cached, not leaked. A trim returns it to the device."],
  ["reserved", "All memory that the pool has from the device: the blocks in use, the bytes added by rounding up, and what is held."],
  ["leaked", "In use at the end, although the program does not need it. Weights and caches are in use at the end too: the table of " +
    "groups lists both."],
  ...Object.entries(MEANINGS),
  ["fragmented", "Free memory in many pieces. A request fails if it fits into none of them, no matter how much is free in total."],
];

/** Calls the action of each key, unless the user is writing somewhere. */
function listenToKeys(state, actions) {
  document.addEventListener("keydown", event => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
    if (event.target instanceof Element && event.target.closest("input, textarea, select, dialog")) return;
    const action = actions[event.key];
    if (!action) return;
    event.preventDefault();
    action();
  }, { signal: state.signal });
}

/** Reports that the first picture is drawn, for tests and for measurements. */
function ready() {
  requestAnimationFrame(() => setTimeout(() => {
    document.documentElement.dataset.firstDrawMs = Math.round(performance.now());
    document.documentElement.dataset.ready = "true";
  }));
}
