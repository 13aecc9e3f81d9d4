// Tables that are sorted by a click on a title.

const ROWS = 200;

/**
 * `columns` are { title, value(row), text(row) | cell(row), number, note }. Sorted by the column in place `sorted` at first, the
 * largest first.
 */
class SortedTable {
  constructor(caption, columns, sorted) {
    this.columns = columns;
    this.sorted = sorted;
    this.rising = false;
    this.rows = [];
    this.titles = columns.map((column, place) => element("th", { scope: "col", class: column.number ? "number" : null },
      element("button", { type: "button", title: column.note, onclick: () => this.sortBy(place) }, column.title)));
    this.body = element("tbody");
    this.more = element("p", { class: "quiet more" });
    this.table = element("table", {},
      element("caption", { class: "hidden" }, caption), element("thead", {}, element("tr", {}, this.titles)), this.body);
    this.element = element("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": caption }, this.table, this.more);
  }

  sortBy(place) {
    this.rising = this.sorted === place ? !this.rising : !this.columns[place].number;
    this.sorted = place;
    this.show(this.rows);
  }

  show(rows) {
    this.rows = rows;
    const { value } = this.columns[this.sorted];
    const compare = (one, other) => {
      const [a, b] = [value(one), value(other)];
      return typeof a === "string" ? a.localeCompare(b) : a - b;
    };
    const sorted = [...rows].sort((one, other) => (this.rising ? compare(one, other) : compare(other, one)));
    this.titles.forEach((title, place) => {
      if (place === this.sorted) title.setAttribute("aria-sort", this.rising ? "ascending" : "descending");
      else title.removeAttribute("aria-sort");
    });
    this.body.replaceChildren(...sorted.slice(0, ROWS).map(row => element("tr", {}, this.columns.map((column, place) =>
      element(place === 0 ? "th" : "td", { scope: place === 0 ? "row" : null, class: column.number ? "number" : null },
        column.cell ? column.cell(row) : column.text(row))))));
    this.more.textContent = sorted.length > ROWS ? `and ${countText(sorted.length - ROWS)} more` : "";
  }
}
