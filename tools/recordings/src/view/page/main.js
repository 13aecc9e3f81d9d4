// Starts the page.

const state = new State();
document.documentElement.dataset.theme = chosenTheme(state);

function showData(about) {
  state.restart();
  if (about.kind === "snapshot") snapshotPage(about, state);
  else if (about.kind === "snapshots") comparisonPage(about.comparison, state, null, null, () => {});
  else historyPages(about, state);
}

try {
  const about = await unpack(document.getElementById("data").textContent).catch(error => {
    throw new Error(`its data is damaged, or the browser is from before 2023 (${error.message})`);
  });
  // The packed text is large, and not needed any more.
  document.getElementById("data").textContent = "";
  showData(about);
} catch (error) {
  const notice = element("p", { class: "notice", role: "alert" }, `This page cannot be shown: ${error.message}.`);
  document.getElementById("page").replaceChildren(notice);
  ready();
  throw error;
}
listenToFiles(about => {
  // What the address says is of the recording that is left, but for the theme.
  for (const name of [...state.values.keys()]) if (name !== "theme") state.set(name, null);
  showData(about);
});
