"""Arrays of PyOpenCL over pools of binpool."""

import gc

import numpy as np
import pyopencl as cl
import pyopencl.array as cl_array
import pytest

import binpool


@pytest.fixture(params=[binpool.MemoryPool, binpool.SVMPool])
def pool(request, queue):
    return request.param(queue)


def ones(queue, count, allocator):
    return cl_array.zeros(queue, count, np.float32, allocator=allocator) + 1


def test_an_array_computes_over_the_pool(queue, pool):
    numbers = np.arange(1000, dtype=np.float32)
    a = cl_array.to_device(queue, numbers, allocator=pool)
    np.testing.assert_array_equal((2 * a + 1).get(), 2 * numbers + 1)
    assert pool.statistics.active_bytes >= 4000


def test_a_dropped_array_goes_back(queue, pool):
    a = ones(queue, 1000, pool)
    before = pool.statistics.active_blocks
    del a
    gc.collect()
    assert pool.statistics.active_blocks == before - 1


def test_temporaries_take_no_new_memory(queue, pool):
    a = ones(queue, 100_000, pool)
    for _ in range(3):
        a = a * 2 + 1
    taken = pool.statistics.managed_bytes
    for _ in range(100):
        a = a * 2 + 1
    queue.finish()
    assert pool.statistics.managed_bytes == taken


def test_a_block_of_a_buffer_pool_is_a_buffer_of_pyopencl(queue):
    pool = binpool.MemoryPool(queue)
    buffer = pool(1000)
    assert isinstance(buffer, cl.Buffer) and buffer.size >= 1000
    data = np.arange(250, dtype=np.float32)
    cl.enqueue_copy(queue, buffer, data)
    back = np.empty_like(data)
    cl.enqueue_copy(queue, back, buffer)
    np.testing.assert_array_equal(back, data)


def test_two_blocks_share_no_bytes(queue):
    pool = binpool.MemoryPool(queue)
    blocks = [pool(1000 + i) for i in range(100)]
    for i, block in enumerate(blocks):
        cl.enqueue_fill(queue, block, np.uint8(i), 1000)
    for i, block in enumerate(blocks):
        back = np.empty(1000, np.uint8)
        cl.enqueue_copy(queue, back, block)
        assert (back == i).all()


def gated_fill(queue, block, value, bytes):
    """A fill that waits for an event of the program's own, and that event."""
    gate = cl.UserEvent(queue.context)
    cl.enqueue_fill(queue, block, np.uint8(value), bytes, wait_for=[gate])
    queue.flush()
    return gate


def open_gate(gate):
    gate.set_status(cl.command_execution_status.COMPLETE)


@pytest.mark.parametrize("uses", ["out of order", "told", "any"])
def test_a_block_is_not_handed_out_while_another_queue_uses_it(context, queue, out_of_order, uses):
    pool = binpool.MemoryPool(queue, segments=False)
    other = out_of_order if uses == "out of order" else cl.CommandQueue(context)
    allocator = {"out of order": pool.on(other), "told": pool, "any": pool.on_any(queue, other)}[uses]
    block = allocator(1 << 20)
    handle = block.int_ptr
    gate = gated_fill(other, block, 1, 1 << 20)
    if uses == "told":
        pool.used_on(block, other)
    del block
    # The queue of the next request knows nothing of the fill, which has not run.
    second = (pool.on(other) if uses == "out of order" else allocator)(1 << 20)
    assert second.int_ptr != handle
    open_gate(gate)
    other.finish()
    del second


def test_a_block_comes_back_at_once_on_its_own_queue(queue):
    pool = binpool.MemoryPool(queue)
    block = pool(1 << 20)
    gate = gated_fill(queue, block, 1, 1 << 20)
    del block
    again = pool(1 << 20)  # The queue runs the fill before whatever comes.
    assert pool.statistics.hits == 1
    open_gate(gate)
    queue.finish()
    del again


def test_a_pool_for_a_context_has_to_be_told_the_queue(context, queue):
    pool = binpool.MemoryPool(context)
    with pytest.raises(ValueError, match=r"pool\.on\(queue\)"):
        pool(1000)
    assert pool.on(queue)(1000).size >= 1000


def test_an_array_may_be_told_of(context, queue, pool):
    a = ones(queue, 1000, pool)
    pool.used_on(a, cl.CommandQueue(context))
    with pytest.raises(ValueError, match="not a block of a binpool pool"):
        pool.used_on(cl.Buffer(context, cl.mem_flags.READ_WRITE, 16), queue)


def test_a_block_outlives_its_pool(queue):
    pool = binpool.MemoryPool(queue)
    a = ones(queue, 1000, pool)
    del pool
    assert (a.get() == 1).all()


def test_threads_share_a_pool(context):
    from concurrent.futures import ThreadPoolExecutor

    pool = binpool.MemoryPool(context)

    def work(number):
        queue = cl.CommandQueue(context)
        allocator = pool.on(queue)
        for size in range(1, 50):
            block = allocator(size * 1000)
            cl.enqueue_fill(queue, block, np.uint8(number), size * 1000)
            back = np.empty(size * 1000, np.uint8)
            cl.enqueue_copy(queue, back, block)
            assert (back == number).all()
        return number

    with ThreadPoolExecutor(4) as threads:
        assert list(threads.map(work, range(8))) == list(range(8))
    assert pool.statistics.active_blocks == 0


@pytest.mark.parametrize("wrong", [0, -1, 1.5, "many"])
def test_a_size_that_is_none_is_an_error_of_python(pool, wrong):
    with pytest.raises((ValueError, TypeError, OverflowError)):
        pool(wrong)


@pytest.mark.parametrize("wrong", [None, 1, "gpu"])
def test_a_pool_is_made_for_a_context_or_a_queue(wrong):
    with pytest.raises(TypeError, match=r"CommandQueue or a pyopencl\.Context"):
        binpool.MemoryPool(wrong)


def test_a_queue_of_another_context_is_refused(pool, context):
    other = cl.CommandQueue(cl.Context(context.devices))
    with pytest.raises(binpool.Error, match="this queue belongs to another context") as caught:
        pool.on(other)
    assert isinstance(caught.value, cl.LogicError)


@pytest.fixture(params=["buffer", "svm"])
def block(request, queue):
    pool = binpool.MemoryPool(queue) if request.param == "buffer" else binpool.SVMPool(queue)
    return pool, pool(1 << 20)


def test_a_released_block_is_back_in_its_pool(block, queue):
    pool, block = block
    block.release()
    assert pool.statistics.active_blocks == 0
    with pytest.raises(ValueError, match="was already released"):
        block.release()
    with pytest.raises(ValueError, match="was already released"):
        pool.used_on(block, queue)


def test_a_released_block_is_not_given_back_a_second_time(block):
    pool, block = block
    block.release()
    again = pool(1 << 20)
    del block
    gc.collect()
    assert pool.statistics.active_blocks == 1
    del again


def test_a_released_svm_block_gives_no_address(queue):
    block = binpool.SVMPool(queue)(1 << 20)
    assert memoryview(block.mem).nbytes == 1 << 20
    block.release()
    with pytest.raises(BufferError, match="was already released"):
        memoryview(block.mem)


def test_an_svm_block_is_released_behind_events(context, queue):
    pool = binpool.SVMPool(queue)
    block = pool(1 << 20)
    gate = cl.UserEvent(context)
    ended = block.enqueue_release(wait_for=[gate])
    assert isinstance(ended, cl.Event)
    assert pool.statistics.active_blocks == 0
    assert ended.command_execution_status != cl.command_execution_status.COMPLETE
    open_gate(gate)
    ended.wait()
    with pytest.raises(TypeError, match=r"pyopencl\.Event"):
        pool(16).enqueue_release(wait_for=[1])


def test_an_svm_block_moves_to_another_queue(context, queue):
    pool = binpool.SVMPool(queue)
    block = pool(1 << 20)
    other = cl.CommandQueue(context)
    block.bind_to_queue(other)
    block.release()
    assert pool.statistics.active_blocks == 0
    block = pool(1 << 20)
    block.unbind_from_queue()
    block.bind_to_queue(queue)
    with pytest.raises(TypeError, match="CommandQueue"):
        block.bind_to_queue(None)


def test_an_svm_block_without_a_queue_is_kept_for_the_queue_that_the_pool_is_told_of(context, queue, out_of_order):
    pool = binpool.SVMPool(queue)
    block = pool(1 << 20)
    address = block.svm_ptr
    block.unbind_from_queue()
    with pytest.raises(binpool.Error, match="out-of-order"):
        block.bind_to_queue(out_of_order)  # It still has no queue.
    pool.used_on(block, queue)
    gate = gated_fill(queue, block, 1, 1 << 20)
    del block
    # The queue of the next request knows nothing of the fill, which has not run.
    second = pool.on(cl.CommandQueue(context))(1 << 20)
    assert second.svm_ptr != address
    open_gate(gate)
    queue.finish()
    del second
