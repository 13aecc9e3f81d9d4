from cupy.cuda._functions import function

_hooks = {}


def get_memory_hooks():
    return _hooks


class MemoryHook:
    def __enter__(self):
        _hooks[self.name] = self

    def __exit__(self, *_raised):
        del _hooks[self.name]

    def __getattr__(self, _name):
        return lambda **_facts: None


__pyx_capi__ = {"_has_memory_hooks": function(lambda _: bool(_hooks))}
