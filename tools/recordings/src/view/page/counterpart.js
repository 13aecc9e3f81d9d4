// What another allocator did when its program was recorded, beside what binpool does with the same requests.

function originText({ origin, allocator }) {
  if (origin !== "happened") return "Simulated";
  return allocator === null ? "As it happened" : `As it happened, by ${allocator}`;
}

/** The places of what happened and of the replay of the same requests, where the history at `place` is one of them; or null. */
function counterparts({ histories }, place) {
  const areAt = first => {
    const [happened, simulated] = [histories[first]?.numbers, histories[first + 1]?.numbers];
    return happened?.origin === "happened" && happened.allocator !== null && simulated?.origin === "simulated" && simulated.file === happened.file;
  };
  const first = [place, place - 1].find(areAt);
  return first === undefined ? null : [first, first + 1];
}

/** A button to the other of the two histories, and their figures in a sentence; nothing where there is no other. */
function counterpartPanel(about, state, place) {
  const places = counterparts(about, place);
  if (!places) return null;
  const [happened, simulated] = places.map(at => about.histories[at].numbers);
  const other = places.find(at => at !== place);
  const failed = simulated.out_of_memory;
  const reserved = bytesText(simulated.peak_reserved.reserved_bytes);
  return element("div", { class: "counterpart", id: "counterpart" },
    element("button", { type: "button", class: "button", id: "counterpart-button", onclick: () => chooseHistory(state, other) },
      place === places[0] ? "What binpool would do" : "What happened"),
    element("p", {}, `At most ${bytesText(happened.peak_reserved.reserved_bytes)} were reserved by ${happened.allocator}, `,
      failed ? `and ${reserved} by binpool before it ran out of memory, at event ${countText(simulated.events)} of the same requests. `
        : `and ${reserved} by binpool in segments for the same requests, in a simulation. `,
      `At most ${bytesText(happened.peak_active.active_bytes)} were in use.`));
}
