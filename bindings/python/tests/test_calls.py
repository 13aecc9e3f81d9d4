"""Calls of pools and allocators, from the second on by another way of Python's (vectorcall)."""

import functools
import gc
import sys

import pyopencl as cl
import pytest

import binpool


@pytest.mark.parametrize("kind", ["MemoryPool", "SVMPool", "on", "on_any"])
def test_each_call_is_as_the_first(queue, kind):
    pool = binpool.SVMPool(queue) if kind == "SVMPool" else binpool.MemoryPool(queue)
    call = {"on": pool.on, "on_any": pool.on_any}.get(kind, lambda _: pool)(queue)
    for _ in range(3):
        assert call(4096).size >= 4096
        assert call(bytes=4096).size >= 4096 and call(*[4096]).size >= 4096 and call(**{"bytes": 64}).size >= 64
        assert functools.partial(call, 4096)().size >= 4096 and list(map(call, [16]))[0].size >= 16
        assert call.allocate(4096).size >= 4096
        for wrong in ([], [1, 2]):
            with pytest.raises(TypeError):
                call(*wrong)
        for wrong in ("16", 1.5, None):
            with pytest.raises(TypeError, match=f"bytes: a whole number is needed, not {wrong!r}"):
                call(wrong)
        for wrong in ({"byte": 16}, {"bytes": 16, "more": 1}):
            with pytest.raises(TypeError):
                call(**wrong)
        with pytest.raises(TypeError):
            call(16, bytes=16)
        for wrong in (-1, 1 << 64):
            with pytest.raises(ValueError, match=f"bytes: {wrong} is negative or too large"):
                call(wrong)
        with pytest.raises(ValueError, match="0 bytes"):
            call(0)
    gc.collect()
    assert pool.statistics.active_blocks == 0


def test_a_pool_stays_what_it_is(queue):
    for maker, named in ((binpool.MemoryPool, "MemoryPool"), (binpool.SVMPool, "SVMPool")):
        pools = [maker(queue) for _ in range(3)]
        for pool in pools:
            pool(16)
            pool(16)
            assert isinstance(pool, maker) and isinstance(pool, binpool.Pool) and type(pool).__name__ == named
            assert "in use of" in repr(pool) and pool.limit is None and callable(pool)
        assert type(pools[0]) is type(pools[2])
    allocator = pools[0].on(queue)
    allocator(16)
    assert isinstance(allocator, binpool.QueueAllocator) and "QueueAllocator" in repr(allocator)


def test_a_pool_that_was_called_has_its_words_and_a_class_for_others(queue):
    pool, called = binpool.MemoryPool(queue), binpool.MemoryPool(queue)
    called(100)
    assert type(called).__doc__ == binpool.MemoryPool.__doc__
    for wrong in [lambda pool: pool(), lambda pool: pool(1, 2), lambda pool: pool(1, bytes=1), lambda pool: pool(size=1)]:
        with pytest.raises(TypeError) as later:
            wrong(called)
        with pytest.raises(TypeError) as first:
            wrong(pool)
        assert str(first.value) == str(later.value)

    class Own(type(called)):
        pass

    own = Own(queue)
    own.note = 1
    assert own(100).size >= 100 and own(100).size >= 100 and own.note == 1 and type(own) is Own


def test_a_class_of_the_programs_own_keeps_its_attributes_whatever_module_it_names(queue):
    class Named(binpool.MemoryPool):
        __module__ = "binpool"

    pool = Named(queue)
    pool.note = 1
    pool(100)
    assert pool.note == 1 and type(pool) is Named


def test_pools_that_were_called_end(queue):
    before = sys.getrefcount(binpool.MemoryPool)
    for _ in range(50):
        pool = binpool.MemoryPool(queue)
        pool(16)
        pool(16)
    del pool
    gc.collect()
    assert sys.getrefcount(binpool.MemoryPool) <= before + 10


def test_a_class_of_the_programs_own_is_called_as_it_says(queue):
    class Counting(binpool.MemoryPool):
        calls = 0

        def __call__(self, bytes):
            self.calls += 1
            return super().__call__(bytes)

    pool = Counting(queue)
    for _ in range(3):
        pool(16)
    assert pool.calls == 3 and type(pool) is Counting


def test_a_pool_for_a_context_says_so_each_time(context):
    pool = binpool.MemoryPool(cl.Context(context.devices))
    for _ in range(3):
        with pytest.raises(ValueError, match=r"pool\.on\(queue\)"):
            pool(16)
