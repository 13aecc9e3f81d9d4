"""Proves the rules of `LeadingBits` (pool/src/size_classes.rs) for every 64-bit size, for each number of leading bits, and compares
what the Rust code prints with the same formulas: `scripts/proofs size_classes` runs it with that on its input.

Each formula is written once, over words that are either z3's bit vectors or Python's numbers. The proofs are of the formulas. What
the code prints ties them to the code: the number of bins, and the bins and classes of the sizes around every boundary.
"""

import sys

import z3

BITS = 64
LARGEST = (1 << BITS) - 1

# Each number of leading bits that is permitted.
ALL_BITS = range(11)


class Vectors:
    """The operations on bit vectors of 64 bits."""

    @staticmethod
    def choose(condition, yes, no):
        return z3.If(condition, yes, no)

    @staticmethod
    def word(number):
        return z3.BitVecVal(number, BITS)

    le, lt, ge = z3.ULE, z3.ULT, z3.UGE
    shr = z3.LShR

    @staticmethod
    def shl(word, by):
        return word << by

    @staticmethod
    def log2(word):
        """The place of the highest bit."""
        place = z3.BitVecVal(0, BITS)
        for bit in range(1, BITS):
            place = z3.If(z3.Extract(bit, bit, word) == 1, z3.BitVecVal(bit, BITS), place)
        return place


class Numbers:
    """The same operations on numbers below 2^64."""

    @staticmethod
    def choose(condition, yes, no):
        return yes if condition else no

    @staticmethod
    def word(number):
        return number

    @staticmethod
    def le(one, two):
        return one <= two

    @staticmethod
    def lt(one, two):
        return one < two

    @staticmethod
    def ge(one, two):
        return one >= two

    @staticmethod
    def shr(word, by):
        return word >> by if by < BITS else 0

    @staticmethod
    def shl(word, by):
        return word << by & LARGEST if by < BITS else 0

    @staticmethod
    def log2(word):
        return max(word.bit_length(), 1) - 1


def wrapped(word):
    return word & LARGEST if isinstance(word, int) else word


def bin_count(bits):
    return (BITS - bits + 1) << bits


def bin_number(on, bits, size):
    last = on.choose(size == 0, on.word(0), wrapped(size - 1))
    shift = wrapped(on.log2(last) - bits)
    large = wrapped(on.shl(shift, on.word(bits)) + on.shr(last, shift))
    return on.choose(on.shr(last, on.word(bits)) == 0, last, large)


def alloc_size(on, bits, number):
    exponent = on.shr(number, on.word(bits))
    shift = wrapped(exponent - 1)
    leading = number & ((1 << bits) - 1) | (1 << bits)
    large = on.shl(wrapped(leading + 1), shift)
    fits = on.choose(on.lt(shift, on.word(BITS)), on.shr(large, shift) == leading + 1, False)
    large = on.choose(fits, large, on.word(LARGEST))
    small = on.choose(number == LARGEST, on.word(LARGEST), wrapped(number + 1))
    return on.choose(on.le(exponent, on.word(1)), small, large)


def rules(bits):
    """Yields the name of each rule, its premise, and the rule."""
    on = Vectors
    size, other = z3.BitVecs("size other", BITS)
    number, further = z3.BitVecs("number further", BITS)
    count = on.word(bin_count(bits))
    its_bin, other_bin = (bin_number(on, bits, it) for it in (size, other))
    of_bin = alloc_size(on, bits, number)
    block = alloc_size(on, bits, its_bin)
    always = z3.BoolVal(True)
    yield "a bin is below the number of bins", always, z3.ULT(its_bin, count)
    yield "a block has at least the size", always, z3.UGE(block, size)
    yield "the class below is too small", its_bin != 0, z3.ULT(alloc_size(on, bits, its_bin - 1), size)
    yield "bins are monotone", z3.ULE(size, other), z3.ULE(its_bin, other_bin)
    yield "sizes are monotone", z3.ULE(number, further), z3.ULE(of_bin, alloc_size(on, bits, further))
    yield "a bin is the bin of its size", z3.ULT(number, count), bin_number(on, bits, of_bin) == number
    yield "at most one part in 2^bits is wasted", size != 0, z3.ULE(block - size, z3.LShR(size, bits))
    # Numbers of 128 bits do not overflow here.
    wide = lambda word: z3.ZeroExt(BITS, word)
    exponent = z3.LShR(number, bits)
    exact = (wide(number & ((1 << bits) - 1) | (1 << bits)) + 1) << wide(exponent - 1)
    exact = z3.If(z3.ULE(exponent, 1), wide(number) + 1, exact)
    largest = z3.BitVecVal(LARGEST, 2 * BITS)
    exact = z3.If(z3.ULE(exact, largest), exact, largest)
    yield "no size overflows", z3.ULT(number, count), wide(of_bin) == exact
    last = size - 1
    shift = on.log2(last) - bits
    is_large = z3.And(size != 0, z3.LShR(last, bits) != 0)
    exact = (wide(shift) << bits) + wide(z3.LShR(last, shift))
    yield "no bin overflows", is_large, wide(its_bin) == exact


def prove(bits):
    """Proves all rules for this number of leading bits. Returns the number of rules that hold, and the failures."""
    failures = []
    proved = 0
    for name, premise, rule in rules(bits):
        solver = z3.SolverFor("QF_BV")
        solver.set("timeout", 600_000)
        solver.add(premise, z3.Not(rule))
        answer = solver.check()
        if answer == z3.unsat:
            proved += 1
        elif answer == z3.sat:
            failures.append(f"{bits} bits: {name}: not so for {solver.model()}")
        else:
            failures.append(f"{bits} bits: {name}: {solver.reason_unknown()}")
    return proved, failures


def compare(lines):
    """Compares lines `bins BITS COUNT` and `row BITS SIZE BIN CLASS-SIZE`. Returns the number of rows, and the failures."""
    rows, counts, failures = {}, {}, []
    for kind, *numbers in lines:
        bits, *numbers = map(int, numbers)
        if kind == "bins":
            (counts[bits],) = numbers
            continue
        size, number, block = numbers
        rows[bits] = rows.get(bits, 0) + 1
        expected = bin_number(Numbers, bits, size)
        if (number, block) != (expected, alloc_size(Numbers, bits, expected)):
            formula = f"bin {expected} of {alloc_size(Numbers, bits, expected)} bytes"
            failures.append(f"{bits} bits, size {size}: bin {number} of {block} bytes, not {formula}")
    if counts != {bits: bin_count(bits) for bits in ALL_BITS}:
        failures.append(f"the numbers of bins are not those of the formula: {counts}")
    # Three sizes of each bin, at least.
    failures += [f"{bits} bits: too few rows" for bits in ALL_BITS if rows.get(bits, 0) < 3 * bin_count(bits)]
    return sum(rows.values()), failures


def main():
    lines = [line.split() for line in sys.stdin if line.startswith(("bins ", "row "))]
    rows, failures = compare(lines)
    print(f"{rows} rows of the code compared")
    proved = 0
    for bits in ALL_BITS:
        more, refuted = prove(bits)
        proved += more
        failures += refuted
    print(f"{proved} rules proved, for all sizes of 64 bits")
    if failures:
        sys.exit("\n".join(failures[:20]))


main()
