"""The code in Python that texts print: it is Python, its first example runs, and what it takes from a package is there."""

import ast
import importlib
import importlib.util
import re
import textwrap
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
# Names that texts use without importing them.
WELL_KNOWN = {"numpy": "numpy", "pyopencl": "pyopencl", "torch": "torch", "rmm": "rmm", "binpool": "binpool"}
# Packages that are not installed where this is tested: what the texts take from them is not looked up.
FOREIGN = ("torch", "cupy", "rmm")


def fenced(text):
    """Return the blocks of Python in Markdown."""
    return re.findall(r"^```python\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)


def shown(docstring):
    """Return the blocks of a docstring after a line that ends on two colons."""
    blocks = re.findall(r"::\n\n((?:(?: {4,}.*)?\n)+)", docstring + "\n")
    return [textwrap.dedent(block) for block in blocks]


def printed_by_record():
    """Return what `binpool record` says of programs in Python."""
    text = (ROOT / "tools/replay/src/command/record.txt").read_text()
    for section in re.split(r"\n(.+)\n-+\n", text):
        if "torch." in section or "import rmm" in section:
            lines = [line for line in section.splitlines() if line.startswith("    ") and not line.startswith("    binpool ")]
            yield textwrap.dedent("\n".join(lines))


def docstrings():
    """Yield the docstrings of the package's modules, with their places."""
    for path in sorted((ROOT / "bindings/python/binpool").glob("*.py*")):
        if path.suffix not in (".py", ".pyi"):
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
                yield path.name, ast.get_docstring(node) or ""


def texts():
    """Yield each piece of code, with where it is from."""
    chapters = [f"pool/guide/{chapter}.md" for chapter in ("python", "from_pyopencl", "first_array_crate")]
    for path in ["README.md", "bindings/python/README.md", *chapters]:
        for code in fenced((ROOT / path).read_text()):
            yield path, code
    for code in printed_by_record():
        yield "record.txt", code
    for name, docstring in docstrings():
        for code in shown(docstring):
            yield name, code


def imported(tree):
    """Return which dotted name each name of the code stands for."""
    names = dict(WELL_KNOWN)
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                names[alias.asname or alias.name.split(".")[0]] = alias.name if alias.asname else alias.name.split(".")[0]
    return names


def dotted(node, names):
    """Return the dotted name of an expression such as `cl_array.zeros`, from its package on; None for another one."""
    parts = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    if isinstance(node, ast.Name) and node.id in names and parts:
        return ".".join([names[node.id], *reversed(parts)])
    return None


def defined(module):
    """Return the names of a module of the package that needs another package to be imported."""
    tree = ast.parse(Path(importlib.util.find_spec("binpool").origin).with_name(f"{module}.py").read_text())
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef)}


def assert_there(name, place):
    """Look a dotted name up."""
    parts = name.split(".")
    if parts[0] in FOREIGN:
        return
    if parts[0] == "binpool" and parts[1] in ("torch", "cupy"):
        assert len(parts) < 3 or parts[2] in defined(parts[1]), f"{place}: {name}"
        return
    found = importlib.import_module(parts[0])
    for depth, part in enumerate(parts[1:], 2):
        if not hasattr(found, part):
            try:
                importlib.import_module(".".join(parts[:depth]))
            except ImportError:
                pytest.fail(f"{place}: there is no {name}")
        found = getattr(found, part)


def test_there_are_as_many_as_there_were():
    assert len(list(texts())) >= 10


@pytest.mark.parametrize(("place", "code"), list(texts()), ids=lambda text: text.split("\n")[0])
def test_what_the_code_takes_from_a_package_is_there(place, code):
    tree = ast.parse(code, place)
    names = imported(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if "." in alias.name:
                    assert_there(alias.name, place)
        name = dotted(node, names) if isinstance(node, ast.Attribute) else None
        if name:
            assert_there(name, place)
        if isinstance(node, ast.Call):
            assert_takes(dotted(node.func, names), {keyword.arg for keyword in node.keywords}, place)


def assert_takes(name, keywords, place):
    """Look the names of arguments up, of what the package itself has."""
    if name is None or not keywords or name.count(".") != 1 or not name.startswith("binpool."):
        return
    stub = ast.parse((ROOT / "bindings/python/binpool/_binpool.pyi").read_text())
    named = name.removeprefix("binpool.")
    for node in stub.body:
        if getattr(node, "name", None) == named:
            makers = [it for it in ast.walk(node) if isinstance(it, ast.FunctionDef) and it.name in ("__init__", "__new__", named)]
            known = {argument.arg for maker in makers for argument in [*maker.args.args, *maker.args.kwonlyargs]}
            assert keywords <= known, f"{place}: {name} takes {known}"


def methods_of(named):
    """Return the members that the types state for these classes."""
    stub = ast.parse((ROOT / "bindings/python/binpool/_binpool.pyi").read_text())
    for node in ast.walk(stub):
        if isinstance(node, ast.ClassDef) and node.name in named:
            for it in node.body:
                if isinstance(it, ast.FunctionDef):
                    yield it.name
                elif isinstance(it, ast.AnnAssign):
                    yield it.target.id


def test_what_the_chapter_says_of_a_pool_is_there():
    chapter = (ROOT / "pool/guide/python.md").read_text()
    there = set(methods_of(["Pool", "OpenCLPool", "MemoryPool", "SVMPool"]))
    used = set(re.findall(r"`pool\.(\w+)", chapter))
    assert used
    assert used <= there, used - there


def test_the_first_example_of_the_chapter_runs(queue, monkeypatch):
    import pyopencl as cl

    monkeypatch.setattr(cl, "create_some_context", lambda: queue.context)
    chapter = (ROOT / "pool/guide/python.md").read_text()
    place = {}
    exec(compile(fenced(chapter)[0], "python.md", "exec"), place)
    assert place["b"].get()[3] == 7
