// The blocks over time, stacked in the order of their allocations: a block that is freed lets those above it move down.

/** The picture is made of pixels: each column shows the blocks at one moment. Blocks that are too small for half a pixel are one area. */
class BlockPicture {
  constructor(program) {
    this.program = program;
    this.found = new Int32Array(1 << 14);
    this.canvas = document.createElement("canvas");
    /** The size of the smallest block that is drawn by itself. */
    this.least = 0;
    this.outline = [];
  }

  /**
   * Draws the moments, a column each, into `plot`. `high` bytes are as high as that. `faded(series)` is whether a series is
   * in the background. The place of the block `marked` in each column is kept in `outline`, as [column, top, bottom].
   */
  draw(pen, moments, plot, high, faded, marked) {
    const ratio = window.devicePixelRatio || 1;
    const [wide, tall] = [moments.length, Math.max(1, Math.round(plot.height * ratio))];
    const { program, found } = this;
    const { asked, numberOf, seriesOf, shown, inUse } = program;
    this.least = high / tall / 2;
    this.outline = [];
    const image = new ImageData(wide, tall);
    const pixels = new Uint32Array(image.data.buffer);
    const colors = [...Array.from({ length: SERIES + 1 }, (_, series) => program.inkOf(series)), { color: ink("free-line"), pattern: "plain" }];
    const inks = colors.map((color, series) => new BlockInk(color, series <= SERIES && faded(series)));
    const rest = inks[SERIES + 1];
    let count = 0;
    for (let column = 0; column < wide; column++) {
      const moment = moments[column];
      if (column === 0 || moment !== moments[column - 1]) count = inUse.find(moment, this.least, found);
      let sum = 0;
      let bottom = tall;
      for (let place = 0; place < count; place++) {
        const block = found[place];
        sum += asked[block];
        const top = Math.max(0, tall - Math.round((sum / high) * tall));
        inks[seriesOf[numberOf[block]]].fill(pixels, wide, column, top, bottom, block, ratio);
        if (block === marked) this.outline.push([column, top / ratio, bottom / ratio]);
        bottom = top;
      }
      const top = Math.max(0, tall - Math.round((shown[moment] / high) * tall));
      if (top < bottom) rest.fill(pixels, wide, column, top, bottom, 0, ratio);
    }
    [this.canvas.width, this.canvas.height] = [wide, tall];
    this.canvas.getContext("2d").putImageData(image, 0, 0);
    pen.imageSmoothingEnabled = false;
    pen.drawImage(this.canvas, plot.left, plot.top, plot.width, plot.height);
  }

  /** The block that is `bytes` above the ground of the stack at a moment; null in the area of the small ones, or above all. */
  at(moment, bytes) {
    const count = this.program.inUse.find(moment, this.least, this.found);
    let sum = 0;
    for (let place = 0; place < count; place++) {
      sum += this.program.asked[this.found[place]];
      if (bytes < sum) return this.found[place];
    }
    return null;
  }

  /** The bytes of the blocks at a moment that are too small to be drawn one by one. */
  restAt(moment) {
    const count = this.program.inUse.find(moment, this.least, this.found);
    let rest = this.program.shown[moment];
    for (let place = 0; place < count; place++) rest -= this.program.asked[this.found[place]];
    return rest;
  }
}

/** The segments of a program, to be drawn as blocks are, in greys that alternate. */
class SegmentsAsBlocks {
  constructor(program) {
    this.asked = program.segmentBytes;
    this.from = program.segmentFrom;
    this.to = program.segmentTo;
    this.shown = program.reserved;
    this.numberOf = Uint32Array.from(this.asked, (_, segment) => segment % 2);
    this.seriesOf = Uint8Array.of(0, 1);
    this.inUse = new BlocksInUse(this, null);
  }

  inkOf(series) {
    return { color: GREYS[theme()][series % 2], pattern: "plain" };
  }
}

/** The colours of the blocks of a series. Blocks that follow each other differ in their shade. */
class BlockInk {
  constructor({ color, pattern }, faded) {
    const ground = channels(ink("panel"));
    const pixel = (color, shade) => packed(mixed(mixed(color, [0, 0, 0], shade), ground, faded ? 0.78 : 0));
    const line = channels(patternLine(color));
    this.shades = [0, 0.08, 0.16].map(shade => pixel(channels(color), shade));
    this.line = pixel(line, 0);
    this.edge = packed(mixed(channels(color), ground, faded ? 0.9 : 0.65));
    this.slant = pattern === "plain" ? 0 : pattern === "rising" ? 1 : -1;
  }

  /** Fills a column from row `top` to above row `bottom`. */
  fill(pixels, wide, column, top, bottom, block, ratio) {
    const shade = this.shades[block % 3];
    const period = Math.round(8 * ratio);
    const thick = Math.round(2 * ratio);
    for (let row = top; row < bottom; row++) {
      const isLine = this.slant !== 0 && (row + this.slant * column + wide * period) % period < thick;
      pixels[row * wide + column] = isLine ? this.line : shade;
    }
    if (bottom - top >= 4) pixels[top * wide + column] = this.edge;
  }
}

function mixed(one, other, part) {
  return one.map((value, place) => Math.round(value + (other[place] - value) * part));
}

/** A pixel of an image, as its bytes are in memory. */
function packed([red, green, blue]) {
  return new Uint32Array(Uint8Array.of(red, green, blue, 255).buffer)[0];
}
