"""Loaded by every Python of a program under `binpool run`: waits for PyTorch and CuPy, and has the package `binpool` pool and record them.

`binpool run` writes this file into a folder that comes first in PYTHONPATH. It has to be understood by any Python, of any version.
"""

import os
import sys

FRAMEWORKS = {"torch": "PyTorch", "cupy": "CuPy", "jax": "JAX", "tensorflow": "TensorFlow"}

# The variables by which a framework allocates each block from the driver, and so from the pool of `binpool run`.
SWITCHES = {
    "jax": "XLA_PYTHON_CLIENT_ALLOCATOR=cuda_async XLA_PYTHON_CLIENT_PREALLOCATE=false",
    "tensorflow": "TF_GPU_ALLOCATOR=cuda_malloc_async",
}


def own():
    """Import the `sitecustomize` of the program, which this one hides, and leave no other trace of this one."""
    here = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [folder for folder in sys.path if os.path.abspath(folder) != here]
    this = sys.modules.pop("sitecustomize")
    try:
        import sitecustomize  # noqa: F401
    except ImportError as error:
        if getattr(error, "name", "sitecustomize") != "sitecustomize":
            raise
    finally:
        # The import of this module looks for it there.
        sys.modules.setdefault("sitecustomize", this)


def say(text):
    """Print a line, once in all processes of the run."""
    import hashlib

    name = hashlib.sha256(text.encode()).hexdigest()[:16]
    try:
        os.close(os.open(os.path.join(os.environ["BINPOOL_RUN"], name), os.O_CREAT | os.O_EXCL))
        sys.stderr.write("binpool: " + text + "\n")
    except (OSError, KeyError, AttributeError, ValueError):
        pass  # It was said before, the run has ended, or standard error is closed.


def load(name):
    """Return a module of the package: that of the program's Python, or else that which the command was installed with."""
    from importlib import import_module, util

    # A module of the program's own may have this name.
    spec = util.find_spec("binpool")
    folders = spec and spec.submodule_search_locations or []
    if any(os.path.exists(os.path.join(folder, "_run.py")) for folder in folders):
        return import_module(name)
    folder = os.environ.get("BINPOOL_PACKAGE")
    if spec or not folder:
        raise ModuleNotFoundError(name="binpool")
    places = [os.path.join(folder, "binpool")]
    spec = util.spec_from_file_location("binpool", os.path.join(places[0], "__init__.py"), submodule_search_locations=places)
    sys.modules["binpool"] = util.module_from_spec(spec)
    try:
        spec.loader.exec_module(sys.modules["binpool"])
    except BaseException:
        del sys.modules["binpool"]
        raise
    return import_module(name)


def imported(name):
    """Has a framework pooled and recorded. Whatever fails, the program runs as it would have."""
    framework = FRAMEWORKS[name]
    if name in SWITCHES:
        variables = SWITCHES[name]
        if os.environ.get("BINPOOL_POOL") and not os.environ.get(variables.split("=")[0]):
            say("{} has an allocator of its own: with {}, or --switch, it allocates from the pool".format(framework, variables))
        return
    version = ".".join(str(number) for number in sys.version_info[:2])
    try:
        if sys.version_info < (3, 11):
            return say("{} is left alone: the package binpool is for Python 3.11 or later, and this is {}".format(framework, version))
        load("binpool._run").imported(name, say)
    except ModuleNotFoundError as error:
        if error.name != "binpool":
            return say("{} is left alone: {}".format(framework, error))
        say("{} is left alone: {} has no package binpool: docs/guide/python.md says how to install it".format(framework, sys.executable))
    except Exception as error:
        say("{} is left alone: {}: {}".format(framework, type(error).__name__, error))


class Waiting:
    """Finds what others find, to be told when a framework has been imported."""

    is_asking = False

    def find_spec(self, name, path=None, target=None):
        """Return the specification of a framework, whose module is told of; None for any other module."""
        # Another finder may ask all others, as this one does. Python asks finders on one thread at a time.
        if name not in FRAMEWORKS or self.is_asking:
            return None
        others = (getattr(finder, "find_spec", None) for finder in sys.meta_path if finder is not self)
        self.is_asking = True
        try:
            spec = next(filter(None, (find(name, path, target) for find in others if find)), None)
        finally:
            self.is_asking = False
        loader = getattr(spec, "loader", None)
        execute = getattr(loader, "exec_module", None)
        if execute is None:
            return spec

        def then_tell(module):
            del loader.exec_module  # The loader is as it was, and can be pickled.
            execute(module)
            imported(name)

        try:
            loader.exec_module = then_tell
        except AttributeError:
            say("{} is left alone: it is loaded by a {}".format(FRAMEWORKS[name], type(loader).__name__))
        return spec


try:
    own()
finally:
    # A run within another one has the hooks of both in PYTHONPATH.
    is_of_this_run = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) == os.environ.get("BINPOOL_RUN")
    if is_of_this_run and sys.version_info >= (3, 6):
        sys.meta_path.insert(0, Waiting())
