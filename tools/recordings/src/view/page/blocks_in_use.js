// Which blocks of at least a certain size are in use at a moment, found without a look at all others.

/** Each group of this many blocks, and of this many groups, stores the last event at which one of its blocks is freed. */
const FAN_BITS = 3;

class BlocksInUse {
  /** Of the blocks with a 1 in `mask`, or of all where that is null. */
  constructor(program, mask) {
    this.program = program;
    this.mask = mask;
    this.levels = new Map();
  }

  /** The blocks of at least 2^power bytes, in the order of their allocations. Made when they are needed first. */
  level(power) {
    if (!this.levels.has(power)) {
      const { asked, to } = this.program;
      const least = 2 ** power;
      const blocks = [];
      for (let block = 0; block < asked.length; block++) {
        if (asked[block] >= least && (!this.mask || this.mask[block])) blocks.push(block);
      }
      let below = Uint32Array.from(blocks, block => to[block]);
      const tops = [];
      while (below.length > 1) {
        const top = new Uint32Array(Math.ceil(below.length / (1 << FAN_BITS)));
        for (let place = 0; place < below.length; place++) {
          const group = place >> FAN_BITS;
          if (below[place] > top[group]) top[group] = below[place];
        }
        tops.push(top);
        below = top;
      }
      this.levels.set(power, { blocks: Int32Array.from(blocks), tops });
    }
    return this.levels.get(power);
  }

  /** Writes the blocks of at least `least` bytes that are in use at `moment` into `found`, the first allocated first. Their count. */
  find(moment, least, found) {
    const { asked, from, to } = this.program;
    const { blocks, tops } = this.level(Math.max(0, Math.floor(Math.log2(least))));
    let [low, high] = [0, blocks.length];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (from[blocks[middle]] < moment) low = middle + 1;
      else high = middle;
    }
    let count = 0;
    let place = 0;
    while (place < low) {
      // The largest group that begins here and was freed as a whole is left out.
      let freed = 0;
      for (let height = 0; height < tops.length; height++) {
        const bits = (height + 1) * FAN_BITS;
        if ((place & ((1 << bits) - 1)) !== 0 || tops[height][place >> bits] >= moment) break;
        freed = 1 << bits;
      }
      if (freed > 0) {
        place += freed;
        continue;
      }
      const block = blocks[place++];
      if (to[block] >= moment && asked[block] >= least) found[count++] = block;
    }
    return count;
  }
}
