from cupy.cuda._functions import function

__pyx_capi__ = {"get_device_id": function(lambda _: 0)}
