// The beginning.

const state = new State();
document.documentElement.dataset.theme = chosenTheme(state);
try {
  const about = await unpack(document.getElementById("data").textContent);
  // A copy of the text is in memory no longer.
  document.getElementById("data").textContent = "";
  if (about.kind === "snapshot") snapshotPage(about, state);
  else tracePage(about, state);
} catch (error) {
  document.getElementById("page").replaceChildren(
    element("p", { class: "notice" }, `This page cannot be shown: ${error.message}. It needs a browser of 2023 or later.`));
  throw error;
}
