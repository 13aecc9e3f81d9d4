// The three questions and their answers.

/** A question with its answer: a figure, what it is, and sentences. `tone` is good, bad or plain. */
function answer(id, question, tone, figure, unit, ...rest) {
  return element("article", { id, class: `answer ${tone}` },
    element("h2", {}, question),
    element("p", { class: "figure" }, element("strong", {}, figure), element("span", {}, unit)),
    ...rest);
}

/** Parts of a whole, side by side. `parts` are [bytes, series or state, name]. */
function shareBar(parts, whole) {
  return element("div", { class: "share", "aria-hidden": "true" }, parts.filter(([bytes]) => bytes > 0).map(([bytes, series, name]) => {
    const part = swatch(series);
    part.className = `${part.className} part`;
    part.style.width = `${(bytes / whole) * 100}%`;
    part.title = `${name}: ${bytesText(bytes)}`;
    return part;
  }));
}

function usedAnswer(program, pin) {
  const { peak_active: peak } = program.numbers;
  const stack = program.stackAt(peak.moment, new Float64Array(SERIES + 1));
  const parts = [...stack].map((bytes, series) => [bytes, series]).filter(([bytes]) => bytes > 0)
    .map(([bytes, series]) => [bytes, series, program.shortName(series)]).sort(([one], [other]) => other - one);
  const top = parts.slice(0, 3).map(([bytes, series, name]) => element("li", {},
    swatch(series), element("span", { class: "name" }, name),
    element("span", { class: "number" }, `${bytesText(bytes)} · ${percentText(bytes / peak.active_bytes)}`)));
  return answer("used", "What is using my memory?", "plain", bytesText(peak.active_bytes), "in use at the peak",
    shareBar(parts, peak.active_bytes),
    element("ul", { class: "top" }, top),
    element("p", { class: "quiet" }, `In ${counted(peak.active_blocks, "block")}, at `, momentButton(program, peak.moment, pin),
      `. Reserved up to ${bytesText(program.numbers.peak_reserved.reserved_bytes)}.`));
}

function momentButton(program, moment, pin) {
  return element("button", { type: "button", class: "link", onclick: () => pin(moment), title: "Show this moment" },
    program.momentText(moment, "events"));
}

function ranOutAnswer(program, pinShortage) {
  const { out_of_memory: failed, shortages, capacity_bytes: capacity, peak_reserved: peak, origin } = program.numbers;
  const happened = origin === "happened";
  const at = failed ? program.numbers.at_end : peak;
  // Another tool's recording may not say how much memory the device had.
  const bar = shareBar([[at.block_bytes, "live", "in use"], [at.held_bytes, "held", "held"]], capacity || Math.max(1, at.reserved_bytes));
  const recorded = shortages.length === 0 ? null : element("p", {},
    `When it was recorded, ${counted(shortages.length, "allocation")} failed for lack of memory, the first at `,
    element("button", { type: "button", class: "link", onclick: () => pinShortage(shortages[0]), title: "Show this moment" },
      program.shortageText(shortages[0])), `: ${bytesText(shortages[0].bytes)}`,
    shortages[0].group ? ` for ${shortages[0].group}.` : ".");
  if (failed) {
    return answer("ran-out", "Why did I run out?", "bad", bytesText(failed.requested_bytes), "could not be allocated", bar,
      element("p", {}, `At event ${countText(program.moments)}, ${failed.reason}: `,
        `${bytesText(failed.active_bytes)} in use, of ${bytesText(failed.capacity_bytes)}.`),
      element("p", {}, element("a", { href: "#", onclick: event => {
        event.preventDefault();
        document.getElementById("shortage").scrollIntoView({ behavior: calm() ? "auto" : "smooth" });
      } }, "What happened, and what to do")), recorded);
  }
  const room = capacity - peak.reserved_bytes;
  // What is to spare on the device says nothing where a limit was reached that is not known.
  const isLimited = happened && shortages[0]?.report?.verdict === "limited" && !program.numbers.limit_bytes;
  const most = element("p", {}, isLimited ? `At most ${bytesText(peak.reserved_bytes)} were reserved.` : capacity === 0
    ? `At most ${bytesText(peak.reserved_bytes)} were reserved. The recording does not say how much memory the device had.`
    : `At most ${bytesText(peak.reserved_bytes)} of ${bytesText(capacity)} were reserved: ${bytesText(room)} to spare.`);
  if (recorded) {
    const report = happened ? shortages[0].report : null;
    const unit = happened ? "could not be allocated" : "could not be allocated when this was recorded; this replay had room";
    return answer("ran-out", "Why did I run out?", "bad", bytesText(shortages[0].bytes), unit, bar,
      report && element("p", { id: "reported" }, `${bytesText(report.active_bytes)} were in use`,
        isLimited ? "" : `, of ${bytesText(report.capacity_bytes)}`, `: ${report.reason}. `,
        report.held_bytes > 0 ? `${bytesText(report.held_bytes)} were free in the pool, ${bytesText(report.largest_held_bytes)} of that in one piece. ` : "",
        `To do: ${report.advice}.`),
      report && report.device_free_bytes !== null && element("p", { id: "device-free" },
        `The device had ${bytesText(report.device_free_bytes)} free, of all programs.`),
      most, recorded);
  }
  if (capacity === 0) {
    return answer("ran-out", "How close was I to running out?", "good", bytesText(peak.reserved_bytes), "reserved at most: memory did not run out", bar, most);
  }
  const smaller = smallerThan(peak.reserved_bytes);
  return answer("ran-out", "How close was I to running out?", "good", bytesText(room), "to spare: memory did not run out", bar, most,
    smaller && element("p", { class: "quiet" }, "To try a smaller device: ", element("code", {}, `binpool view --capacity ${smaller}`)));
}

/** The largest power of two below this many bytes, as the command takes it; null where that is less than a KiB. */
function smallerThan(bytes) {
  const power = Math.ceil(Math.log2(bytes)) - 1;
  const unit = Math.min(Math.floor(power / 10), UNITS.length - 1);
  return power < 10 ? null : `${2 ** (power - 10 * unit)}${UNITS[unit]}`;
}

function leakedAnswer(program, pin) {
  const { at_end: end, out_of_memory: failed } = program.numbers;
  const rounding = end.block_bytes - end.active_bytes;
  return answer("leaked", "Is it leaked, or cached?", "plain", bytesText(end.active_bytes),
    failed ? "in use when memory ran out" : "still in use at the end",
    shareBar([[end.block_bytes, "live", "in use"], [end.held_bytes, "held", "held"]], Math.max(1, end.reserved_bytes)),
    element("ul", { class: "top" },
      element("li", {}, swatch("live"), element("span", { class: "name" }, failed ? "in use: needed, or leaked" : "in use: leaked, or meant to stay"),
        element("span", { class: "number" }, counted(end.active_blocks, "block"))),
      element("li", {}, swatch("held"), element("span", { class: "name" }, "held by the pool: cached, not leaked"),
        element("span", { class: "number" }, bytesText(end.held_bytes)))),
    element("p", { class: "quiet" },
      "The pool uses held memory for later requests, and a trim returns it to the device. ",
      end.active_blocks === 0 ? "Every block was freed: nothing is leaked." : ["Blocks in use were not freed: ",
        element("button", { type: "button", class: "link", onclick: () => pin(program.moments) }, "see the end"), "."],
      rounding > 0 ? ` Rounding their sizes up to size classes adds ${bytesText(rounding)}.` : ""));
}

function calm() {
  return matchMedia("(prefers-reduced-motion: reduce)").matches;
}
