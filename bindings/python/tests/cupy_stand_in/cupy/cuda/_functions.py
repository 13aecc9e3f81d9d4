"""Functions as Cython's modules have them for others."""

import ctypes

new_capsule = ctypes.pythonapi.PyCapsule_New
new_capsule.restype = ctypes.py_object
new_capsule.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
_kept = []


def function(call, signature=b"int (int __pyx_skip_dispatch)", result=ctypes.c_int):
    in_c = ctypes.PYFUNCTYPE(result, ctypes.c_int)(call)
    name = ctypes.create_string_buffer(signature)
    _kept.extend([in_c, name])
    return new_capsule(ctypes.cast(in_c, ctypes.c_void_p), ctypes.cast(name, ctypes.c_char_p), None)
