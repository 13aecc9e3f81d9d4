// The largest of many numbers, found in few steps.

const PEAK_SPAN = 256;

class Peaks {
  constructor(numbers) {
    this.numbers = numbers;
    /** The place of the first largest number of each span. */
    this.best = new Uint32Array(Math.ceil(numbers.length / PEAK_SPAN));
    for (let span = 0; span < this.best.length; span++) {
      const end = Math.min(numbers.length, (span + 1) * PEAK_SPAN) - 1;
      this.best[span] = this.scan(span * PEAK_SPAN, end, span * PEAK_SPAN);
    }
  }

  scan(from, to, best) {
    const { numbers } = this;
    for (let place = from; place <= to; place++) if (numbers[place] > numbers[best]) best = place;
    return best;
  }

  /** The place of the first largest number from place `from` to place `to`, both included. */
  between(from, to) {
    const { numbers } = this;
    let best = from;
    let place = from;
    while (place <= to) {
      if (place % PEAK_SPAN === 0 && place + PEAK_SPAN - 1 <= to) {
        const of = this.best[place / PEAK_SPAN];
        if (numbers[of] > numbers[best]) best = of;
        place += PEAK_SPAN;
      } else {
        const end = Math.min(to, place - (place % PEAK_SPAN) + PEAK_SPAN - 1);
        best = this.scan(place, end, best);
        place = end + 1;
      }
    }
    return best;
  }
}
