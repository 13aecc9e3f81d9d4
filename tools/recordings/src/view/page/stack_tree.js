// The call stacks of a program as a tree: what was called by the same frames is one branch.

/** What stands in place of the frames of a block without a stack: the name of its group, where that explains it. */
function withoutStack(group) {
  return group.startsWith("(") ? group : "(no stack)";
}

class StackTree {
  /** Below the root are the frames at which the program or a thread begins. */
  constructor(program) {
    this.program = program;
    this.frames = ["all"];
    this.parents = [-1];
    this.depths = [0];
    this.children = [[]];
    const known = [new Map()];
    const child = (parent, frame) => {
      let node = known[parent].get(frame);
      if (node === undefined) {
        node = this.frames.length;
        known[parent].set(frame, node);
        known.push(new Map());
        this.frames.push(frame);
        this.parents.push(parent);
        this.depths.push(this.depths[parent] + 1);
        this.children.push([]);
        this.children[parent].push(node);
      }
      return node;
    };
    /** The node of the innermost frame of each stack. */
    this.nodes = program.stacks.map(stack => stack.reduceRight((parent, frame) => child(parent, frame), 0));
    /** The node of the blocks without a stack, by their group. */
    this.unknown = new Map();
    program.stack.forEach((stack, block) => {
      const group = program.columns.group[block];
      if (stack === 0 && !this.unknown.has(group)) this.unknown.set(group, child(0, withoutStack(program.nameOf(block))));
    });
  }

  nodeOf(block) {
    const { stack, columns } = this.program;
    return stack[block] > 0 ? this.nodes[stack[block] - 1] : this.unknown.get(columns.group[block]);
  }

  /** The bytes and blocks of each node, with all that is below it, of these blocks. */
  sum(blocks) {
    const { program } = this;
    const bytes = new Float64Array(this.frames.length);
    const counts = new Float64Array(this.frames.length);
    for (const block of blocks) {
      if (program.mask && !program.mask[block]) continue;
      const node = this.nodeOf(block);
      bytes[node] += program.asked[block];
      counts[node]++;
    }
    // A node comes after its parent.
    for (let node = bytes.length - 1; node > 0; node--) {
      bytes[this.parents[node]] += bytes[node];
      counts[this.parents[node]] += counts[node];
    }
    return { bytes, counts };
  }

  /** The nodes below this one that have bytes, the largest first. */
  below(node, { bytes }) {
    return this.children[node].filter(child => bytes[child] > 0).sort((one, other) => bytes[other] - bytes[one]);
  }

  /** The frames from the root to a node, without the root. */
  pathTo(node) {
    const path = [];
    for (let at = node; at > 0; at = this.parents[at]) path.unshift(at);
    return path;
  }
}
