// Starts the page.

const state = new State();
document.documentElement.dataset.theme = chosenTheme(state);
try {
  const about = await unpack(document.getElementById("data").textContent).catch(error => {
    throw new Error(`its data is damaged, or the browser is from before 2023 (${error.message})`);
  });
  // The packed text is large, and not needed any more.
  document.getElementById("data").textContent = "";
  if (about.kind === "snapshot") snapshotPage(about, state);
  else if (about.kind === "snapshots") comparisonPage(about.comparison, state, null, null, () => {});
  else historyPages(about, state);
} catch (error) {
  const notice = element("p", { class: "notice", role: "alert" }, `This page cannot be shown: ${error.message}.`);
  document.getElementById("page").replaceChildren(notice);
  ready();
  throw error;
}
