"""Random programs over the package: what a program does in no sensible order must not crash it, hang it or give wrong numbers.

    python random_programs.py SECONDS         for so long, from a seed of its own
    python random_programs.py SECONDS SEED    from this seed on, which a failure names

Each program has pools, queues, blocks, arrays, parts, views, recordings and threads, and drops, releases, reads, limits, watches and
misuses them as its seed says. Blocks are filled and read back, so that one that is handed out too early is seen. At its end nothing is
left in the pools. Programs run in a child process, so that a crash is a failure with its seed, and so is a program that does not end. The
child ends while its threads still use a pool.
"""

import contextlib
import faulthandler
import gc
import os
import queue as queues
import random
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from unittest.mock import MagicMock

import numpy as np
import pyopencl as cl
import pyopencl.array as cl_array

import binpool

# How long a child runs programs, and how long one program may take.
CHILD_SECONDS = 10
WATCHDOG_SECONDS = 60

# What a call may raise that is asked for too much, or for nonsense.
REFUSALS = (binpool.Error, ValueError, TypeError, BufferError, OverflowError, OSError)

# PyOpenCL's arrays share kernels, whose arguments two threads must not set at once.
ARRAYS = threading.Lock()

CONTEXT = cl.Context([cl.get_platforms()[0].get_devices()[0]])


class Gates:
    """Events that commands wait for, which a thread of Python sets a little later."""

    def __init__(self):
        self.waiting = queues.SimpleQueue()
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def run(self):
        while (entry := self.waiting.get()) is not None:
            gate, seconds = entry
            time.sleep(seconds)
            gate.set_status(cl.command_execution_status.COMPLETE)

    def new(self, rng):
        gate = cl.UserEvent(CONTEXT)
        self.waiting.put((gate, rng.random() * 0.005))
        return gate

    def end(self):
        self.waiting.put(None)
        self.thread.join()


class Item:
    """A block, the queue that it is used on, and what it should have."""

    def __init__(self, pool, queue, block, bytes):
        self.pool, self.queue, self.block, self.bytes = pool, queue, block, bytes
        self.is_svm = isinstance(block, cl.SVM)
        self.expected = np.zeros(bytes, np.uint8)
        self.parts = []
        self.views = []
        # Views that the program keeps without the item, for a while.
        self.has_kept_views = False
        self.story = []

    def tell(self, *what):
        self.story.append(" ".join(map(str, what)))

    def fill(self, rng, wait_for):
        value = rng.randrange(256)
        if self.is_svm:
            pattern = np.array([value], np.uint8)
            event = cl.enqueue_svm_memfill(self.queue, self.block, pattern, byte_count=self.bytes, wait_for=wait_for)
        else:
            event = cl.enqueue_fill_buffer(self.queue, self.block, np.uint8(value), 0, self.bytes, wait_for=wait_for)
        self.expected[:] = value
        self.tell("filled with", value, "after a gate" if wait_for else "")
        self.done(event)

    def done(self, event):
        """Wait for a command where the queue would not run the next one after it."""
        if self.queue.properties & cl.command_queue_properties.OUT_OF_ORDER_EXEC_MODE_ENABLE:
            event.wait()
        else:
            self.queue.flush()

    def fill_part(self, rng):
        part, start, stop = rng.choice(self.parts)
        value = rng.randrange(256)
        self.done(cl.enqueue_fill_buffer(self.queue, part, np.uint8(value), 0, stop - start))
        self.expected[start:stop] = value
        self.tell("filled from", start, "to", stop, "with", value)

    def check(self):
        found = np.empty(self.bytes, np.uint8)
        if self.is_svm:
            # PyOpenCL keeps Python's lock in blocking calls for shared memory, and who sets the gates needs it.
            map = self.block.map_ro(self.queue, is_blocking=False)
            map.event.wait()
            with map as mapped:
                found[:] = np.frombuffer(mapped, np.uint8)[: self.bytes]
        else:
            cl.enqueue_copy(self.queue, found, self.block)
        if not (found == self.expected).all():
            place = int(np.argmax(found != self.expected))
            raise AssertionError(f"byte {place} of {self.bytes} is {found[place]}, not {self.expected[place]}: {self.story}")


class Reenters:
    """An argument that uses the pool while it is looked at."""

    def __init__(self, program, rng, value):
        self.program, self.rng, self.value = program, rng, value

    def __index__(self):
        self.program.step(self.rng, depth=1)
        return self.value

    def __fspath__(self):
        self.program.step(self.rng, depth=1)
        return str(self.program.folder / f"{self.value}.html")

    @property
    def base_data(self):
        self.program.step(self.rng, depth=1)
        return self.value


class Program:
    def __init__(self, seed, folder):
        rng = random.Random(seed)
        self.folder = folder
        self.gates = Gates()
        out_of_order = cl.command_queue_properties.OUT_OF_ORDER_EXEC_MODE_ENABLE
        self.queues = [cl.CommandQueue(CONTEXT, properties=rng.choice([0, 0, out_of_order])) for _ in range(rng.randint(1, 3))]
        self.pools = [self.new_pool(rng) for _ in range(rng.randint(1, 3))]
        self.items, self.odd, self.recordings, self.lock = [], [], [], threading.Lock()
        self.failure = None

    def new_pool(self, rng):
        origin = rng.choice([CONTEXT, *self.queues])
        reuse = rng.choice(["opportunistic", "same_queue", "insert_wait", "wait_on_host"])
        limit = rng.choice([None, None, 4 << 20, 64 << 20])
        if rng.random() < 0.5:
            return binpool.SVMPool(origin, limit=limit, reuse=reuse)
        return binpool.MemoryPool(origin, limit=limit, reuse=reuse, segments=rng.choice([None, False]))

    # Items are handed from thread to thread: the thread that has taken one out has it alone.

    def take(self, rng):
        with self.lock:
            return self.items.pop(rng.randrange(len(self.items))) if self.items else None

    def put(self, item):
        with self.lock:
            self.items.append(item)

    @contextlib.contextmanager
    def item(self, rng):
        item = self.take(rng)
        if item is None:
            item = self.new_item(rng)
        try:
            yield item
        finally:
            self.put(item)

    def new_item(self, rng):
        pool, queue = rng.choice(self.pools), rng.choice(self.queues)
        bytes = rng.choice([1, 100, 4096, 5000, 65536, 65536, 1 << 20, 3 << 20])
        uses = rng.random()
        allocator = pool.on_any(*self.queues) if uses < 0.2 else pool.on(queue)
        block = self.ask_in_odd_code(rng, allocator, bytes) if rng.random() < 0.2 else allocator(bytes)
        item = Item(pool, queue, block, bytes)
        item.tell(pool, "on any" if uses < 0.2 else "", self.queues.index(queue), f"of {len(self.queues)}", queue.properties)
        item.fill(rng, [self.gates.new(rng)] if rng.random() < 0.1 else None)
        return item

    @staticmethod
    def ask_in_odd_code(rng, allocator, bytes):
        name = rng.choice([None, 5, "", "m", "m\udcff", "binpool.x", "pyopencl"])
        file = rng.choice(["x.py", "\udcff.py", "x\ny.py", "", "a/", "pyopencl/x.py"])
        names = {"__name__": name, "allocator": allocator, "bytes": bytes}
        exec(compile("block = allocator(bytes)", file, "exec"), names)
        return names["block"]

    # What a program does, by name.

    def do_allocate(self, rng, depth):
        self.put(self.new_item(rng))

    do_allocate_more = do_allocate

    def do_fill(self, rng, depth):
        with self.item(rng) as item:
            item.fill(rng, [self.gates.new(rng)] if rng.random() < 0.1 else None)

    def do_check(self, rng, depth):
        with self.item(rng) as item:
            item.check()

    def do_drop(self, rng, depth):
        item = self.take(rng)
        if item is not None:
            attributes = ["block", "parts", "views"]
            rng.shuffle(attributes)
            for attribute in attributes:
                delattr(item, attribute)

    def do_drop_in_a_cycle(self, rng, depth):
        item = self.take(rng)
        if item is not None:
            item.block.me = item

    def do_collect(self, rng, depth):
        if rng.random() < 0.1:
            gc.collect()

    def do_release(self, rng, depth):
        item = self.take(rng)
        if item is None:
            return
        block, parts = item.block, item.parts
        del item.parts
        try:
            if item.is_svm and rng.random() < 0.5:
                block.enqueue_release(rng.choice([None, item.queue]), [self.gates.new(rng)] if rng.random() < 0.3 else None)
            else:
                block.release()
        except BufferError:
            if not item.views and not item.has_kept_views:
                raise AssertionError("a release was refused, and there is no view") from None
            return
        if item.views:
            raise AssertionError("a block was released under a view")
        # Only this call is allowed on it: commands would use another user's block.
        for call in (block.release, lambda: item.pool.used_on(block, item.queue), lambda: block[0:1], lambda: memoryview(block.mem)):
            try:
                call()
            except (*REFUSALS, AttributeError):
                continue
            raise AssertionError("a released block was used")
        self.keep(rng, [part for part, _, _ in parts])

    def keep(self, rng, thing):
        with self.lock:
            self.odd.append(thing)
            if len(self.odd) > 20:
                self.odd.pop(rng.randrange(20))

    def do_view(self, rng, depth):
        with self.item(rng) as item:
            if not item.is_svm:
                return
            make = rng.choice([memoryview, np.asarray, lambda _: item.block.buf, cl.SVM, lambda _: item.block.as_buffer(CONTEXT)])
            view = make(item.block.mem)
            item.tell("viewed as", type(view))
            if rng.random() < 0.7:
                item.views.append(view)
            else:
                item.has_kept_views = True
                self.keep(rng, np.asarray(item.block.mem))

    def do_look(self, rng, depth):
        with self.lock:
            views = [view for view in self.odd if isinstance(view, np.ndarray)]
        if views:
            view = rng.choice(views)
            view[rng.randrange(len(view))]

    def do_drop_views(self, rng, depth):
        with self.item(rng) as item:
            item.views.clear()

    def do_part(self, rng, depth):
        with self.item(rng) as item:
            if item.is_svm:
                return
            start = rng.choice([0, 128, 4096, 5, 65536])
            stop = start + rng.choice([1, 100, 4096, 1 << 20])
            if stop > item.bytes:
                return
            whole, offset = item.block, 0
            if item.parts and rng.random() < 0.3:
                whole, offset, end = rng.choice(item.parts)
                if offset + stop > end:
                    return
            part = whole[start:stop] if rng.random() < 0.5 else whole.get_sub_region(start, stop - start)
            item.parts.append((part, offset + start, offset + stop))

    def do_fill_part(self, rng, depth):
        with self.item(rng) as item:
            if item.parts:
                item.fill_part(rng)

    def do_use_on_another_queue(self, rng, depth):
        with self.item(rng) as item:
            item.queue.finish()
            item.pool.used_on(rng.choice([item.block, *(part for part, _, _ in item.parts)]), other := rng.choice(self.queues))
            item.queue = other
            item.tell("used on", self.queues.index(other), other.properties)
            item.fill(rng, None)

    def do_bind(self, rng, depth):
        with self.item(rng) as item:
            if item.is_svm:
                item.queue.finish()
                if rng.random() < 0.5:
                    item.block.unbind_from_queue()
                other = rng.choice(self.queues)
                try:
                    item.block.bind_to_queue(other)
                except binpool.Error:
                    # Refused, as each queue out of order is. The block may have no queue now: then the pool has to be told of one.
                    item.pool.used_on(item.block, item.queue)
                    return
                item.queue = other
                item.tell("bound to", self.queues.index(other), other.properties)
                item.fill(rng, None)

    def do_array(self, rng, depth):
        queue = rng.choice([queue for queue in self.queues if not queue.properties] or [None])
        if queue is not None:
            pool = rng.choice(self.pools)
            with ARRAYS:
                self.compute(rng, pool.on(queue), queue)

    @staticmethod
    def compute(rng, allocator, queue):
        array = cl_array.zeros(queue, rng.choice([1, 1000, 50_000]), np.float32, allocator=allocator)
        # A sum with 0 is a copy, and PyOpenCL keeps Python's lock while it copies shared memory: see `check`.
        value = rng.randrange(1, 1000)
        found, event = ((array + value) * 2).get_async()
        event.wait()
        if found[-1] != 2 * value:
            raise AssertionError("an array computes something else")

    def do_new_pool(self, rng, depth):
        if rng.random() < 0.2:
            self.pools[rng.randrange(len(self.pools))] = self.new_pool(rng)

    def do_watch(self, rng, depth):
        rng.choice(self.pools).watch()

    def do_stop_watching(self, rng, depth):
        rng.choice(self.pools).stop_watching()

    def do_ask(self, rng, depth):
        pool = rng.choice(self.pools)

        def live_blocks():
            try:
                return pool.live_blocks()
            except ValueError:  # It is not watched, or no longer.
                return []

        text = rng.choice([pool.report, pool.snapshot, live_blocks, lambda: str(pool.statistics), lambda: repr(pool)])()
        if text is None:
            raise AssertionError("no answer")

    def do_trim(self, rng, depth):
        pool = rng.choice(self.pools)
        rng.choice([pool.trim, pool.free_held, lambda: pool.trim(rng.randrange(1 << 22))])()

    def do_stop_holding(self, rng, depth):
        if rng.random() < 0.05:
            rng.choice(self.pools).stop_holding()

    def do_limit(self, rng, depth):
        rng.choice(self.pools).limit = rng.choice([None, None, 1, 1 << 20, 16 << 20, 0])

    def do_record(self, rng, depth):
        path = self.folder / f"{rng.randrange(3)}.trace"
        recording = rng.choice(self.pools).record(rng.choice([path, str(path), os.fsencode(path)]))
        with self.lock:
            self.recordings.append(recording)

    def do_end_recording(self, rng, depth):
        with self.lock:
            recording = self.recordings.pop(rng.randrange(len(self.recordings))) if self.recordings else None
        if recording is not None and rng.random() < 0.8:
            recording.finish()

    def do_view_page(self, rng, depth):
        if rng.random() < 0.05:
            rng.choice(self.pools).view(self.folder / rng.choice(["now.html", "now.pdf", "missing/now.html"]))

    def do_view_recording(self, rng, depth):
        with self.lock:
            recordings = list(self.recordings)
        if recordings and rng.random() < 0.1:
            rng.choice(recordings).view(self.folder / "recording.html")

    def do_misuse(self, rng, depth):
        pool = rng.choice(self.pools)
        odd = [0, -1, 1.5, "many", None, 1 << 63, 1 << 64, (1 << 63) - 1, float("nan"), [], object(), b"x", MagicMock(), True]
        odd += [MagicMock(spec=real, int_ptr=1) for real in (cl.CommandQueue, cl.Context, cl.Event, cl.Buffer, cl.SVM)]
        if depth == 0:
            odd += [Reenters(self, rng, 100), Reenters(self, rng, -1)] * 3
        thing = rng.choice(odd)
        with self.item(rng) as item:
            calls = [
                lambda: pool.on(thing),
                lambda: pool.on_any(rng.choice(self.queues), thing),
                lambda: pool.used_on(thing, item.queue),
                lambda: pool.used_on(item.block, thing),
                lambda: binpool.MemoryPool(thing),
                lambda: binpool.SVMPool(item.queue, device=thing),
                lambda: pool.record(thing if isinstance(thing, Reenters) else None),
                lambda: pool.view(thing if isinstance(thing, Reenters) else None),
                lambda: pool.trim(thing),
                lambda: item.block.get_sub_region(thing, 10),
                lambda: item.block[thing],
                lambda: item.block.bind_to_queue(thing),
                lambda: item.block.enqueue_release(thing, [thing]) if thing is not None else None,
                lambda: item.block.enqueue_release(None, [thing]),
                lambda: pool.on(item.queue)(thing),
            ]
            with contextlib.suppress(AttributeError, cl.Error):
                rng.choice(calls)()

    def step(self, rng, depth=0):
        actions = [name for name in dir(self) if name.startswith("do_")]
        with contextlib.suppress(*REFUSALS):
            getattr(self, rng.choice(actions))(rng, depth)
        while len(self.items) > 30:
            self.do_drop(rng, depth)

    def run_thread(self, seed, steps):
        rng = random.Random(seed)
        try:
            for _ in range(steps):
                self.step(rng)
                if self.failure:
                    return
        except BaseException as error:
            self.failure = error

    def run(self, rng):
        threads = [threading.Thread(target=self.run_thread, args=(rng.random(), 150)) for _ in range(rng.choice([1, 2, 4]))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if self.failure:
            raise self.failure
        while self.items:
            self.items.pop().check()
        for recording in self.recordings:
            recording.finish()
        self.odd.clear()
        self.recordings.clear()
        for queue in self.queues:
            queue.finish()
        self.gates.end()
        gc.collect()
        for pool in self.pools:
            if pool.statistics.active_blocks != 0:
                raise AssertionError(f"blocks are left:\n{pool.report()}")
            pool.trim()
            if pool.managed_bytes != 0:
                raise AssertionError(f"memory is left:\n{pool.report()}")


def end_with_threads(rng):
    """Leave threads at work in pools, which the end of the interpreter meets."""
    queue = cl.CommandQueue(CONTEXT)
    pool = rng.choice([binpool.MemoryPool, binpool.SVMPool])(queue)
    if rng.random() < 0.7:
        pool.watch()
    sys.setswitchinterval(rng.choice([0.005, 1e-6]))

    def work():
        kept = []
        while True:
            with contextlib.suppress(binpool.Error):
                kept.append(pool(rng.choice([1234, 1 << 40])))
            if len(kept) > 5:
                kept.pop(0)

    for _ in range(3):
        threading.Thread(target=work, daemon=True).start()
    time.sleep(rng.random() * 0.2)


def child(seed, seconds):
    faulthandler.enable()
    end, rng = time.monotonic() + seconds, random.Random(seed)
    while time.monotonic() < end:
        print(seed, flush=True)
        faulthandler.dump_traceback_later(WATCHDOG_SECONDS, exit=True)
        with tempfile.TemporaryDirectory() as folder:
            Program(seed, Path(folder)).run(random.Random(seed))
        seed += 1
    faulthandler.dump_traceback_later(WATCHDOG_SECONDS, exit=True)
    end_with_threads(rng)


def main(seconds, seed):
    end, programs = time.monotonic() + seconds, 0
    while (left := end - time.monotonic()) > 0:
        command = [sys.executable, __file__, "child", str(seed), str(min(left, CHILD_SECONDS))]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            seeds = [int(line) for line in process.stdout]
        if process.returncode != 0:
            last = seeds[-1] if seeds else seed
            sys.exit(f"the program of seed {last} ended with {process.returncode}: python {__file__} {CHILD_SECONDS} {last}")
        programs += len(seeds)
        seed += len(seeds)
    print(f"{programs} random programs")


if __name__ == "__main__":
    if sys.argv[1] == "child":
        child(int(sys.argv[2]), float(sys.argv[3]))
    else:
        main(float(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else random.randrange(1 << 31))
