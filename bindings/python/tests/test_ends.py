"""The end of a block's object in Python, in all the ways that it ends."""

import gc
import weakref

import pyopencl as cl
import pyopencl.array as cl_array
import pytest

import binpool


@pytest.fixture
def pool(queue):
    return binpool.MemoryPool(queue)


class Holds:
    """Is part of a circle of garbage, with a block."""

    kept = None

    def __init__(self, block, at_end):
        self.block, self.itself, self.at_end = block, self, at_end

    def __del__(self):
        self.at_end(self)


def test_a_block_in_a_circle_of_garbage_goes_back(pool):
    Holds(pool(4096), lambda _: None)
    gc.collect()
    assert pool.statistics.active_blocks == 0


@pytest.mark.parametrize("part", [False, True])
def test_a_block_whose_circle_is_kept_by_a_finalizer_stays(pool, part):
    """Python has called the finalizer of the block, too, by then."""
    Holds(pool(4096)[0:1024] if part else pool(4096), lambda holds: setattr(Holds, "kept", holds))
    gc.collect()
    kept, Holds.kept = Holds.kept.block, None
    gc.collect()
    assert pool.statistics.active_blocks == 1
    assert pool(4096).int_ptr != kept.int_ptr
    kept.release() if part else kept[0:512].release()
    del kept
    gc.collect()
    assert pool.statistics.active_blocks == 0


def test_attributes_and_weak_references_end_with_their_block(pool):
    block = pool(4096)
    block.note = note = pool(64)
    block.itself = block
    del note
    with pytest.raises(TypeError):
        weakref.ref(block)  # PyOpenCL's buffers allow no weak references.
    del block
    gc.collect()
    assert pool.statistics.active_blocks == 0


def test_a_block_that_the_program_has_given_another_class_goes_back_with_a_later_one(pool):
    block = pool(4096)
    block.__class__ = cl.Buffer
    del block
    others = [pool(4096) for _ in range(100)]
    del others
    assert pool.statistics.active_blocks <= 1


def test_a_finalizer_that_is_called_by_hand_is_no_double_free(pool):
    block = pool(4096)
    block.__del__()
    block.__del__()
    del block
    gc.collect()
    first, second = pool(4096), pool(4096)
    assert first.int_ptr != second.int_ptr and pool.statistics.active_blocks == 2


def test_arrays_of_a_block_keep_it(queue, pool):
    a = cl_array.zeros(queue, 1000, "float32", allocator=pool)
    b = a[10:20].reshape(2, 5)
    del a
    assert pool.statistics.active_blocks == 1
    del b
    assert pool.statistics.active_blocks == 0
