"""What is tried before a request fails for lack of memory: the collector of garbage, and hooks of the program."""

import gc
import sys
import threading

import pyopencl.array as cl_array
import pytest

import binpool

LIMIT = 16 << 20
# Two do not fit.
LARGE = 10 << 20


@pytest.fixture(params=[binpool.MemoryPool, binpool.SVMPool])
def pool(request, queue):
    return request.param(queue, limit=LIMIT)


@pytest.fixture
def no_collector():
    """No collection but those that are called for."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


class Node:
    pass


def test_garbage_is_collected_before_a_request_fails(queue, pool, no_collector):
    for call in (pool, pool.on(queue), pool.on_any(queue)):
        for _ in range(5):
            node = Node()
            node.itself, node.array = node, cl_array.empty(queue, LARGE, "uint8", allocator=call)
    assert pool.statistics.out_of_memory == 0


def test_a_hook_frees_what_the_program_can_do_without(pool):
    cache, asked = [pool(LARGE)], []

    def shrink(bytes):
        asked.append(bytes)
        cache.clear()

    hook = pool.add_reclaim_hook(shrink)
    block = pool(LARGE)
    assert asked == [LARGE] and not cache
    assert pool.remove_reclaim_hook(hook) and not pool.remove_reclaim_hook(hook)
    with pytest.raises(binpool.OutOfMemoryError):
        pool(LARGE)
    assert asked == [LARGE]
    del block


def test_a_hook_is_called_again_while_it_frees_something(pool):
    cache, asked = [pool(LIMIT // 4) for _ in range(4)], []

    def shrink(bytes):
        asked.append(bytes)
        return bool(cache) and cache.pop() is not None

    pool.add_reclaim_hook(shrink)
    block = pool(LIMIT // 2)
    # Two are enough once the commands that used them have ended; until then it is called for more.
    assert len(asked) >= 2 and len(cache) == max(4 - len(asked), 0)
    del block


def test_what_a_hook_raises_is_reported_and_the_next_is_called(pool, monkeypatch):
    reported = []
    monkeypatch.setattr(sys, "unraisablehook", lambda it: reported.append((type(it.exc_value), it.object)))
    cache = [pool(LARGE)]

    def fails(bytes):
        raise KeyError(bytes)

    pool.add_reclaim_hook(fails)
    pool.add_reclaim_hook(lambda _: cache.clear())
    assert pool(LARGE).size >= LARGE
    assert reported == [(KeyError, fails)]


def test_a_hook_may_use_its_pool_and_is_not_called_within_itself(pool):
    block, calls = pool(LARGE), []

    def asks(bytes):
        calls.append(bytes)
        assert pool(64).size >= 64
        with pytest.raises(binpool.OutOfMemoryError):
            pool(bytes)

    pool.add_reclaim_hook(asks)
    with pytest.raises(binpool.OutOfMemoryError):
        pool(LARGE)
    assert calls == [LARGE]
    del block


def test_a_hook_is_a_function(pool):
    for wrong in (None, 5, "shrink"):
        with pytest.raises(TypeError, match="hook: a function of a number of bytes is needed"):
            pool.add_reclaim_hook(wrong)
    with pytest.raises(TypeError):
        pool.remove_reclaim_hook(5)


def test_threads_whose_requests_call_hooks_wait_for_no_other(queue, pool):
    """Each hook takes a lock of the program, as a cache does, and threads with that lock make requests."""
    lock, cache = threading.RLock(), []

    def shrink(_):
        with lock:
            cache.clear()

    pool.add_reclaim_hook(shrink)
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)

    def work():
        for _ in range(5):
            with lock:
                try:
                    cache.append(pool(LARGE))
                except binpool.OutOfMemoryError:
                    cache.clear()
            pool.trim()

    threads = [threading.Thread(target=work, daemon=True) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
    sys.setswitchinterval(interval)
    assert not any(thread.is_alive() for thread in threads)
    cache.clear()
    assert pool.statistics.active_blocks == 0
