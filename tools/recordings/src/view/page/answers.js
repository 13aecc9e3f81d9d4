// The three questions and their answers.

/** A question with its answer: a figure, what it is, and sentences. `tone` is good, bad, same or plain. */
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
  // In the order of series: those with the most bytes at the peak first, and all others together last.
  const parts = [...stack].map((bytes, series) => [bytes, series]).filter(([bytes]) => bytes > 0)
    .map(([bytes, series]) => [bytes, series, program.shortName(series)]);
  const top = parts.slice(0, 3).map(([bytes, series, name]) => element("li", {},
    swatch(series), nameText(name, titleOf(program.seriesName(series))),
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
  const { shortages, capacity_bytes: capacity, limit_bytes: limit, peak_reserved: peak, origin, at_end: end } = program.numbers;
  const happened = origin === "happened";
  const shortage = shortageOf(program);
  const at = program.numbers.out_of_memory ? end : peak;
  // Another tool's recording may not say how much memory the device had.
  const whole = shortage?.hasCapacity === false ? 0 : capacity;
  const bar = shareBar([[at.block_bytes, "live", "in use"], [at.held_bytes, "held", "held"]], whole || Math.max(1, at.reserved_bytes));
  const recorded = shortages.length === 0 ? null : element("p", {},
    `When it was recorded, ${counted(shortages.length, "allocation")} failed for lack of memory, the first at `,
    element("button", { type: "button", class: "link", onclick: () => pinShortage(shortages[0]), title: "Show this moment" },
      program.shortageText(shortages[0])), `: ${bytesText(shortages[0].bytes)}`,
    shortages[0].group ? ` for ${shortages[0].group}.` : ".");
  if (shortage) {
    const { failed, hasCapacity } = shortage;
    const [asked, why] = whyText(failed, hasCapacity);
    const told = failed.reason === null ? "The recording does not say why" : `It failed because ${failed.reason}`;
    return answer("ran-out", "Why did I run out?", "bad", asked, why, bar,
      element("p", { id: "why" }, `${told}: ${bytesText(failed.active_bytes)} in use, ${bytesText(failed.reserved_bytes)} reserved. `,
        element("a", { href: "#", onclick: event => {
          event.preventDefault();
          document.getElementById("shortage").scrollIntoView({ behavior: calm() ? "auto" : "smooth" });
        } }, "What filled the memory, and what to do")), recorded);
  }
  const room = capacity - peak.reserved_bytes;
  const most = element("p", {}, capacity === 0
    ? `At most ${bytesText(peak.reserved_bytes)} were reserved. The recording does not say how much memory the device had.`
    : `At most ${bytesText(peak.reserved_bytes)} of ${bytesText(capacity)} were reserved: ${bytesText(room)} to spare.`);
  if (recorded) {
    return answer("ran-out", "Why did I run out?", "bad", bytesText(shortages[0].bytes),
      "could not be allocated when this was recorded; this replay had room", bar, most, recorded);
  }
  if (capacity === 0) {
    return answer("ran-out", "How close was I to running out?", "good", bytesText(peak.reserved_bytes), "reserved at most: memory did not run out", bar, most);
  }
  const smaller = smallerThan(peak.reserved_bytes);
  const where = happened ? "" : ` on a simulated ${program.numbers.device}`;
  return answer("ran-out", "How close was I to running out?", "good", bytesText(room), `to spare${where}: memory did not run out`, bar, most,
    smaller && element("p", { class: "quiet" }, `To try a smaller ${limit === null ? "device" : "limit"}: `,
      element("code", {}, `binpool view --capacity ${smaller}`)));
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
      element("li", {}, swatch("live"), element("span", { class: "name wrapped" }, failed ? "in use: needed, or leaked" : "in use: leaked, or meant to stay"),
        element("span", { class: "number" }, counted(end.active_blocks, "block"))),
      element("li", {}, swatch("held"), element("span", { class: "name wrapped" }, "held by the pool: cached, not leaked"),
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
