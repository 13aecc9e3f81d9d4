"""Views and parts of blocks, and what is left of a block that was released."""

import gc
import threading

import numpy as np
import pyopencl as cl
import pytest

import binpool

VIEWS = {
    "memoryview": lambda block: memoryview(block.mem),
    "array": lambda block: np.asarray(block.mem),
    "buf": lambda block: block.buf,
    "array of an array": lambda block: np.asarray(block.mem)[8:].view(np.uint64),
    "another SVM": lambda block: cl.SVM(block.mem),
    "buffer": lambda block: block.as_buffer(block.context_of_test),
}


@pytest.fixture
def svm(queue):
    return binpool.SVMPool(queue)


@pytest.mark.parametrize("kind", VIEWS)
@pytest.mark.parametrize("release", ["release", "enqueue_release"])
def test_a_block_of_shared_memory_is_not_released_under_a_view(svm, context, kind, release):
    block = svm(4096)
    block.context_of_test = context
    view = VIEWS[kind](block)
    for _ in range(2):
        with pytest.raises(BufferError, match="1 of the block's views"):
            getattr(block, release)()
    assert svm.statistics.active_blocks == 1
    block.bind_to_queue(cl.CommandQueue(context))  # It is as it was.
    del view
    gc.collect()
    getattr(block, release)()
    assert svm.statistics.active_blocks == 0


@pytest.mark.parametrize("kind", ["memoryview", "array", "buf"])
def test_a_view_keeps_its_block_of_shared_memory(svm, kind):
    block = svm(4096)
    view = VIEWS[kind](block)
    address = block.svm_ptr
    del block
    gc.collect()
    assert svm.statistics.active_blocks == 1
    assert svm(4096).svm_ptr != address
    del view
    gc.collect()
    assert svm.statistics.active_blocks == 0


def test_views_come_and_go_while_a_block_is_released(svm):
    """A release and a view that race: one of them is refused."""
    for _ in range(200):
        block, start, views = svm(4096), threading.Barrier(2), []

        def look(block=block, start=start, views=views):
            start.wait()
            try:
                views.append(memoryview(block.mem))
            except BufferError:
                views.append(None)

        thread = threading.Thread(target=look)
        thread.start()
        start.wait()
        try:
            block.release()
            released = True
        except BufferError:
            released = False
        thread.join()
        assert released == (views[0] is None) or not released
    del block, views, look
    gc.collect()
    assert svm.statistics.active_blocks == 0


def test_a_view_is_refused_or_given_while_another_thread_waits_for_the_block(context, queue, svm):
    """The block's lock is waited for by no thread that keeps the others of Python from running."""
    block, gate = svm(4096), cl.UserEvent(context)
    cl.enqueue_svm_memfill(queue, block, np.array([1], np.uint8), wait_for=[gate])
    queue.flush()
    waits = threading.Thread(target=block.unbind_from_queue)
    waits.start()
    waits.join(0.2)  # Until it waits: it most often does by then, and the test is right if not.
    with memoryview(block.mem) as view:
        assert view.nbytes == 4096
    gate.set_status(cl.command_execution_status.COMPLETE)
    waits.join()
    block.release()


@pytest.mark.parametrize("segments", [True, False])
@pytest.mark.parametrize("slicing", [lambda a: a[4096:8192], lambda a: a.get_sub_region(4096, 4096), lambda a: a[0:16384][4096:8192]])
def test_a_part_of_a_block_is_these_bytes(queue, segments, slicing):
    pool = binpool.MemoryPool(queue, segments=segments)
    before, block = pool(1 << 16), pool(1 << 16)
    cl.enqueue_fill(queue, before, np.uint8(9), 1 << 16)
    cl.enqueue_fill(queue, block, np.uint8(1), 1 << 16)
    part = slicing(block)
    assert isinstance(part, cl.Buffer) and part.size == 4096
    cl.enqueue_fill(queue, part, np.uint8(2), 4096)
    back = np.empty(1 << 16, np.uint8)
    cl.enqueue_copy(queue, back, block)
    expected = np.ones(1 << 16, np.uint8)
    expected[4096:8192] = 2
    np.testing.assert_array_equal(back, expected)


def image_over(context, buffer):
    pixels = cl.ImageFormat(cl.channel_order.RGBA, cl.channel_type.FLOAT)
    return cl.create_image(context, cl.mem_flags.READ_WRITE, pixels, shape=(256,), buffer=buffer)


def test_whole_buffers_are_had_where_others_make_parts_and_images_of_them(context, queue):
    pool = binpool.MemoryPool(queue, segments=False)
    block = pool(1 << 16)
    assert not pool.segments and block.associated_memobject is None
    assert image_over(context, block).width == 256
    assert cl.MemoryObject.from_int_ptr(block.int_ptr).get_sub_region(4096, 4096).size == 4096


def test_a_block_of_a_segment_has_its_place_in_a_whole_buffer(context, queue):
    pool = binpool.MemoryPool(queue)
    if not pool.segments:
        pytest.skip("whole buffers on NVIDIA's OpenCL")
    before, block = pool(1 << 16), pool(1 << 16)
    with pytest.raises(cl.LogicError, match="INVALID_MEM_OBJECT"):
        image_over(context, block)
    whole, offset = block.associated_memobject, block.offset
    assert offset > 0
    cl.enqueue_fill(queue, whole.get_sub_region(offset + 4096, 4096), np.uint8(3), 4096)
    back = np.empty(4096, np.uint8)
    cl.enqueue_copy(queue, back, block[4096:8192])
    assert (back == 3).all()
    del before


@pytest.mark.parametrize("segments", [True, False])
@pytest.mark.parametrize("end", ["drop", "release"])
def test_a_part_keeps_its_block(queue, segments, end):
    pool = binpool.MemoryPool(queue, segments=segments)
    block = pool(1 << 20)
    part = block[0:4096][0:4096]
    if end == "release":
        block.release()
    del block
    gc.collect()
    assert pool.statistics.active_blocks == 1
    second = pool(1 << 20)
    cl.enqueue_fill(queue, second, np.uint8(1), 4096)
    cl.enqueue_fill(queue, part, np.uint8(2), 4096)
    back = np.empty(4096, np.uint8)
    cl.enqueue_copy(queue, back, second)
    assert (back == 1).all()
    del part, second
    gc.collect()
    assert pool.statistics.active_blocks == 0


def test_a_part_that_is_released_no_longer_keeps_its_block(queue):
    pool = binpool.MemoryPool(queue)
    block = pool(4096)
    part = block[0:1024]
    block.release()
    assert pool.statistics.viewed_blocks == 1
    part.release()
    assert pool.statistics.active_blocks == 0
    for call in (part.release, lambda: part[0:10], lambda: block[0:10]):
        with pytest.raises(ValueError, match="was already released"):
            call()


def test_a_part_ends_where_its_block_ends(queue):
    pool = binpool.MemoryPool(queue)
    block, after = pool(1 << 16), pool(1 << 16)
    part = block[4096:8192]
    for whole, origin, size in [(block, 0, block.size + 1), (block, block.size, 4096), (part, 0, 4097), (part, 4096, 1), (block, 0, 0)]:
        with pytest.raises(binpool.Error) as caught:
            whole.get_sub_region(origin, size)
        # As PyOpenCL's buffers, for programs that catch its errors.
        assert isinstance(caught.value, cl.LogicError)
    for empty in (slice(block.size, None), slice(10, 10), slice(20, 10)):
        with pytest.raises(cl.LogicError, match="an empty part: a buffer of OpenCL has at least one byte"):
            block[empty]
    for wrong in (5, None, "all"):
        with pytest.raises(TypeError):
            block[wrong]
    with pytest.raises(ValueError, match="contiguous: use a step of 1, not 2"):
        block[0:4096:2]
    for arguments, name in [((-1, 5), "origin"), ((0, 1 << 64), "size"), ((0, 5, -1), "flags")]:
        with pytest.raises(ValueError, match=f"{name}: .* is negative or too large"):
            block.get_sub_region(*arguments)
    assert block[4096 : 1 << 40].size == block.size - 4096 and block[-4096:].size == 4096
    del after


def test_a_use_of_a_part_is_one_of_its_block(context, queue):
    pool = binpool.MemoryPool(queue, segments=False)
    block = pool(1 << 20)
    part, handle, other, gate = block[0:4096], block.int_ptr, cl.CommandQueue(context), cl.UserEvent(context)
    cl.enqueue_fill_buffer(other, part, np.uint8(1), 0, 4096, wait_for=[gate])
    other.flush()
    pool.used_on(part, other)
    del block, part
    gc.collect()
    assert pool(1 << 20).int_ptr != handle
    gate.set_status(cl.command_execution_status.COMPLETE)
    other.finish()
