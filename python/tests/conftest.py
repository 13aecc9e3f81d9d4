"""What the tests share: a context on the first OpenCL device."""

import pyopencl as cl
import pytest


@pytest.fixture(scope="session")
def context():
    return cl.Context([cl.get_platforms()[0].get_devices()[0]])


@pytest.fixture
def queue(context):
    return cl.CommandQueue(context)


@pytest.fixture
def out_of_order(context):
    return cl.CommandQueue(context, properties=cl.command_queue_properties.OUT_OF_ORDER_EXEC_MODE_ENABLE)
