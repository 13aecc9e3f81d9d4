// Pages that are dropped on this one: their recordings are shown together, with a menu to choose from.

/** The data of a page of `binpool view`, from the text of its file; an error for any other file. */
async function dataOfPage(file) {
  // Nothing in it is run, or loaded.
  const data = new DOMParser().parseFromString(await file.text(), "text/html").getElementById("data");
  if (!data) throw new Error(`${file.name} is not a page of binpool view. Write one with: binpool view ${file.name}`);
  const about = await unpack(data.textContent).catch(error => {
    throw new Error(`${file.name} is damaged (${error.message})`);
  });
  for (const history of about.histories) history.name = `${file.name}: ${history.name}`;
  return about;
}

/** The data of several pages as that of one; those without a history of their own only stand alone. */
function joined(abouts) {
  const [first, ...more] = abouts;
  if (more.length === 0) return first;
  if (abouts.some(({ histories }) => histories.length === 0)) throw new Error("the page of a snapshot of a pool opens alone: drop it by itself");
  return { ...first, comparison: null, histories: abouts.flatMap(({ histories }) => histories), tables: abouts.flatMap(({ tables }) => tables) };
}

/** Calls `show(about)` with the data of pages that are dropped on this one. */
function listenToFiles(show) {
  const notice = element("p", { id: "dropped", class: "dropped", role: "alert", hidden: true });
  document.body.append(notice);
  const hasFiles = event => event.dataTransfer?.types.includes("Files");
  document.addEventListener("dragover", event => hasFiles(event) && event.preventDefault());
  document.addEventListener("drop", async event => {
    if (!hasFiles(event)) return;
    event.preventDefault();
    notice.hidden = true;
    try {
      show(joined(await Promise.all([...event.dataTransfer.files].map(dataOfPage))));
    } catch (error) {
      notice.textContent = error.message;
      notice.hidden = false;
    }
  });
}
