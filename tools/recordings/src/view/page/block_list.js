// The list of the blocks at a moment.

/** The most blocks that are listed, the largest first. */
const MOST = 5000;

class BlockList {
  constructor(program, pin) {
    this.program = program;
    this.at = null;
    const amount = (title, of) => ({ title, number: true, value: of, text: row => bytesText(of(row)) });
    const moment = (title, of) => ({ title, number: true, value: of, cell: row =>
      (of(row) > program.moments ? "never" : momentButton(program, of(row), pin)) });
    this.table = new SortedTable("The blocks at the pinned moment", [
      { title: "Name", value: row => row.name, cell: row =>
        element("span", { class: "named" }, swatch(row.series), nameText(row.name)) },
      amount("Asked for", row => row.asked),
      amount("Takes", row => row.bytes),
      { title: "Segment", number: true, value: row => row.segment, text: row => (row.segment === 0 ? "–" : countText(row.segment)) },
      moment("Allocated at", row => row.from),
      moment("Freed at", row => row.to),
      { title: "Age", number: true, value: row => row.age, text: row => (program.times ? timeText(row.age) : counted(row.age, "event")) },
    ], 1);
    this.summary = element("summary");
    this.element = element("details", { id: "blocks", ontoggle: () => this.fill() }, this.summary, this.table.element);
  }

  show(at) {
    this.at = at;
    const some = at.blocks > MOST ? `, the largest ${countText(MOST)}` : "";
    this.summary.textContent = `The ${counted(at.blocks, "block")} at this moment, one by one${some}`;
    this.fill();
  }

  fill() {
    if (!this.element.open || !this.at) return;
    const { program } = this;
    const { there, moment } = this.at;
    const listed = there.length > MOST ? [...there].sort((one, other) => program.asked[other] - program.asked[one]).slice(0, MOST) : there;
    const clock = program.times ? "time" : "events";
    this.table.show(listed.map(block => {
      const number = program.numberOf[block];
      const from = program.from[block] + 1;
      return {
        name: program.rows[number].name, series: program.seriesOf[number], asked: program.asked[block], bytes: program.bytes[block],
        segment: program.segment[block], from, to: program.to[block] + 1,
        age: program.place(moment, clock) - program.place(from, clock),
      };
    }));
  }
}
