"""Tags of the program: which requests carry them, and where they are shown."""

import asyncio
import json
import threading

import numpy as np
import pyopencl.array as cl_array
import pytest

import binpool


@pytest.fixture
def pool(queue):
    pool = binpool.MemoryPool(queue)
    pool.watch()
    return pool


def tags_of(pool):
    return {group.tag for group in pool.live_blocks()}


def test_requests_carry_the_innermost_tag_before_their_line(pool, queue):
    with binpool.tag("forward"):
        first = pool(1000)
        with binpool.tag("attention"):
            second = cl_array.empty(queue, 1000, np.float32, allocator=pool)
        third = pool(100)
    fourth = pool(50)
    found = [(group.tag, group.bytes) for group in pool.live_blocks()]
    assert found == [("attention", 4000), ("forward", 1000), ("forward", 100), (None, 50)]
    assert all("in test_requests_carry" in group.call_site for group in pool.live_blocks())
    del first, second, third, fourth


def test_a_tag_is_in_reports_snapshots_and_recordings(pool, tmp_path):
    with pool.record(tmp_path / "program.trace"), binpool.tag("weights"):
        block = pool(4096)
    line = "weights, at test_tags.py:"
    assert line in pool.report()
    assert any(line in text for text in (tmp_path / "program.trace").read_text().splitlines() if text.startswith("g "))
    assert line in json.dumps(json.loads(pool.snapshot()))
    pool.limit = 1 << 20
    with pytest.raises(binpool.OutOfMemoryError) as caught:
        pool(1 << 24)
    assert line in str(caught.value)
    del block


def test_a_tag_decorates_functions(pool):
    @binpool.tag("step")
    def step(bytes, *, count):
        """Its text."""
        return [pool(bytes) for _ in range(count)]

    blocks = step(64, count=2)
    assert (step.__name__, step.__doc__) == ("step", "Its text.")
    assert [(group.tag, group.blocks) for group in pool.live_blocks()] == [("step", 2)]
    del blocks


def test_a_tag_ends_where_its_part_of_the_program_fails(pool):
    with pytest.raises(ZeroDivisionError), binpool.tag("fails"):
        1 / 0  # noqa: B018
    block = pool(64)
    assert tags_of(pool) == {None}
    del block


def test_one_tag_may_be_entered_within_itself(pool):
    again = binpool.tag("again")
    with again, again:
        pass
    with again:
        block = pool(64)
    other = pool(64)
    assert tags_of(pool) == {"again", None}
    del block, other


def test_a_thread_begins_without_a_tag(pool):
    blocks = []
    with binpool.tag("of the first thread"):
        thread = threading.Thread(target=lambda: blocks.append(pool(64)), **no_inherited_context())
        thread.start()
        thread.join()
    assert tags_of(pool) == {None}


def no_inherited_context():
    """Python from 3.14 on may give a thread the variables of its starter: not for a thread that gets its own."""
    import contextvars
    import inspect

    takes = "context" in inspect.signature(threading.Thread.__init__).parameters
    return {"context": contextvars.Context()} if takes else {}


def test_each_task_has_its_own_tags(pool):
    blocks = []

    async def work(name):
        with binpool.tag(name):
            await asyncio.sleep(0)
            blocks.append(pool(len(name)))
            await asyncio.sleep(0)
            blocks.append(pool(len(name)))

    @binpool.tag("decorated")
    async def decorated():
        await asyncio.sleep(0)
        blocks.append(pool(100))

    async def all_of_them():
        await asyncio.gather(work("a"), work("bb"), decorated())

    asyncio.run(all_of_them())
    found = {(group.tag, group.bytes) for group in pool.live_blocks()}
    assert found == {("a", 1), ("bb", 2), ("decorated", 100)}


def test_a_generator_shares_the_tags_of_its_caller(pool):
    def generate():
        with binpool.tag("generator"):
            yield pool(1)
            yield pool(2)

    generator = generate()
    first = next(generator)
    with binpool.tag("caller"):
        second = next(generator)
        third = pool(4)
        assert list(generator) == []  # It leaves its tag within the caller's.
        fourth = pool(8)
    fifth = pool(16)
    found = {group.bytes: group.tag for group in pool.live_blocks()}
    assert found == {1: "generator", 2: "caller", 4: "caller", 8: "caller", 16: None}
    del first, second, third, fourth, fifth


def test_what_cannot_be_tagged_is_refused():
    def generate():
        yield 1

    for wrong in (generate, object, 5):
        with pytest.raises(TypeError):
            binpool.tag("x")(wrong)
    for name in (5, None, b"x"):
        with pytest.raises(TypeError, match="string"):
            binpool.tag(name)


def test_a_name_of_any_characters_is_a_tag(pool):
    blocks = []
    for name in ("", "two\nlines", "\udcff", "x, at y", "été"):
        with binpool.tag(name):
            blocks.append(pool(64))
    found = tags_of(pool)
    assert {"(no name)", "two lines", "x, at y", "été"} < found and len(found) == len(blocks)
