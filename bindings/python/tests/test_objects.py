"""Objects that are not what they say they are."""

from unittest.mock import MagicMock, patch

import pyopencl as cl
import pytest

import binpool


class Pretends:
    """Says that it is an object of PyOpenCL, with the handle 1."""

    int_ptr = 1

    def __init__(self, real):
        self.real = real

    @property
    def __class__(self):
        return self.real

    def __getattr__(self, name):
        return self


class SaysAllAreOne(type):
    def __subclasscheck__(cls, other):
        return True

    __instancecheck__ = __subclasscheck__

    @property
    def __mro__(cls):
        return (cls, cl.CommandQueue, cl.Context, cl.Event, object)

    def __eq__(cls, other):
        return True

    __hash__ = type.__hash__


class Equal(metaclass=SaysAllAreOne):
    int_ptr = 1


FALSE = {
    "mock": lambda real: MagicMock(spec=real, int_ptr=1),
    "class attribute": Pretends,
    "metaclass": lambda real: Equal(),
    "the class itself": lambda real: real,
    "number": lambda real: 1,
    "without a handle": lambda real: real.__new__(real),
}


@pytest.mark.parametrize("false", FALSE)
@pytest.mark.filterwarnings("ignore:nanobind")
def test_what_is_no_object_of_pyopencl_is_refused(context, queue, false):
    make, pool, svm = FALSE[false], binpool.MemoryPool(queue), binpool.SVMPool(queue)
    block = svm(16)
    calls = [
        lambda: binpool.MemoryPool(make(cl.CommandQueue)),
        lambda: binpool.SVMPool(make(cl.Context)),
        lambda: binpool.MemoryPool(context, device=make(cl.Device)),
        lambda: pool.on(make(cl.CommandQueue)),
        lambda: pool.on_any(queue, make(cl.CommandQueue)),
        lambda: pool.used_on(pool(16), make(cl.CommandQueue)),
        lambda: block.bind_to_queue(make(cl.CommandQueue)),
        lambda: block.enqueue_release(make(cl.CommandQueue)),
        lambda: block.enqueue_release(queue, [make(cl.Event)]),
    ]
    for call in calls:
        with pytest.raises(TypeError):
            call()


def test_a_subclass_has_the_handle_of_its_base(context, queue):
    class Queue(cl.CommandQueue):
        int_ptr = 1

    own = Queue(context)
    block = binpool.MemoryPool(own)(4096)
    assert block.size >= 4096
    assert binpool.MemoryPool(queue).on(own)(4096).size >= 4096


def test_a_class_that_the_program_puts_in_the_place_of_pyopencls_is_not_taken(queue):
    pool = binpool.MemoryPool(queue)
    with patch("pyopencl.CommandQueue", Equal), pytest.raises(TypeError):
        pool.on(Equal())


def test_a_device_is_that_of_the_queue(context, queue):
    pool = binpool.MemoryPool(queue, device=context.devices[0])
    assert pool(16).size >= 16
    assert binpool.MemoryPool(context, device=context.devices[0]).on(queue)(16).size >= 16
    for origin in (queue, context):
        with pytest.raises(TypeError, match=r"pyopencl\.Device"):
            binpool.MemoryPool(origin, device=5)
    others = [device for platform in cl.get_platforms() for device in platform.get_devices() if device != queue.device]
    for other in others:
        with pytest.raises(ValueError, match="another device"):
            binpool.MemoryPool(queue, device=other)


def test_no_limit_is_none_and_not_0(queue):
    for limit in (0,):
        with pytest.raises(ValueError, match="None for no limit"):
            binpool.MemoryPool(queue, limit=limit)
        pool = binpool.SVMPool(queue)
        with pytest.raises(ValueError, match="None for no limit"):
            pool.limit = limit
        assert pool.limit is None
