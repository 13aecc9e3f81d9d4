from cupy.cuda._functions import function

_hooks = {}


def get_memory_hooks():
    return _hooks


class MemoryHook:
    def __enter__(self):
        _hooks[self.name] = self

    def __exit__(self, *_raised):
        del _hooks[self.name]

    def nothing(self, **_facts):
        pass

    alloc_preprocess = alloc_postprocess = malloc_preprocess = malloc_postprocess = free_preprocess = free_postprocess = nothing


__pyx_capi__ = {"_has_memory_hooks": function(lambda _: bool(_hooks))}
