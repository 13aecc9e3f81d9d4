"""Fetches a crate from the registry at one version, and edits its source by the names of its items.

A client's `place.py` says what changes, in our own lines alone:

    crate = edit.Crate("some-crate", "1.2.3", sha256="...")
    crate.add_file("src/pool.rs", HERE / "pool.rs")
    crate.add_dependency("binpool", path="pool")
    lib = crate.source("src/lib.rs")
    lib.insert_before("struct Buffer", "mod pool;")
    lib.replace_body("Program::create_buffer", "self.pool.buffer(length)")
    crate.write()

The crate lies in `target/clients/NAME/before` as it was published, and in `target/clients/NAME/after` with the changes. Every
name must be found exactly once; else the edit fails, with what was found instead.
"""

import difflib
import hashlib
import json
import re
import shutil
import tarfile
import urllib.request
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CLIENTS = ROOT / "target/clients"


class EditError(Exception):
    """The source is not as the edit expects it."""


class Crate:
    """A crate of the registry, once as it was published (`before`) and once to be edited (`after`)."""

    def __init__(self, name, version, sha256):
        self.name, self.version = name, version
        self.before, self.after = CLIENTS / name / "before", CLIENTS / name / "after"
        self._sources = {}
        # Folders that are no part of the crate.
        self._users = ["figures"]
        archive = _fetched(name, version, sha256)
        for side in (self.before, self.after):
            _unpack(archive, f"{name}-{version}", side)
            # A package in a folder of this repository would be taken for one of its workspace.
            _append(side / "Cargo.toml", "[workspace]")

    def source(self, path):
        """Returns the source file at `path` of the crate, to be edited; `write` stores it."""
        return self._source(self.after / path)

    def both(self, path):
        """Returns the file at `path` twice, for edits that are not binpool's: what the crate needs to run here at all."""
        return self._source(self.before / path), self._source(self.after / path)

    def add_file(self, path, ours):
        """Adds the file `ours` to the crate at `path`, where nothing may be yet."""
        if (self.after / path).exists():
            raise EditError(f"{self.name} has a file {path} of its own")
        shutil.copyfile(ours, self.after / path)

    def replace_file(self, path, ours):
        """Puts the file `ours` in the place of one of the crate's."""
        if not (self.after / path).exists():
            raise EditError(f"{self.name} has no file {path}")
        shutil.copyfile(ours, self.after / path)

    def add_test(self, name, ours):
        """Adds a test on either side, for what the crate has no test of but an example."""
        for side in (self.before, self.after):
            (side / "tests").mkdir(exist_ok=True)
            shutil.copyfile(ours, side / "tests" / f"{name}.rs")
            _append(side / "Cargo.toml", f'[[test]]\nname = "{name}"\npath = "tests/{name}.rs"')

    def add_dependency(self, name, path=None, **keys):
        """Adds a dependency: with `path`, the crate in that folder of this repository; else, what `keys` say (version, features ...)."""
        if path is not None:
            keys["path"] = str(ROOT / path)
        lines = [f"[dependencies.{name}]", *(f"{key.replace('_', '-')} = {json.dumps(value)}" for key, value in keys.items())]
        _append(self.after / "Cargo.toml", "\n".join(lines))

    def extend_feature(self, name, needs):
        """Adds what a feature of the crate needs."""
        manifest = self.after / "Cargo.toml"
        text = manifest.read_text()
        found = list(re.finditer(rf"^{re.escape(name)} = \[(.*?),?\s*\]$", text, re.MULTILINE | re.DOTALL))
        _exactly(1, found, f"{name} = [...]", manifest.name)
        end = found[0].end(1)
        manifest.write_text(text[:end] + "".join(f', "{need}"' for need in needs) + text[end:])

    def add_figures(self, ours, patch=False):
        """Adds our package `figures` of the folder `ours` on either side, as a member of a workspace, with `Cargo.lock` of that folder.
        With `patch`, crates that the package depends on take this crate, too, instead of the registry's."""
        for side in (self.before, self.after):
            shutil.copytree(ours / "figures", side / "figures", ignore=shutil.ignore_patterns("target"))
            shutil.copyfile(ours / "Cargo.lock", side / "Cargo.lock")
            _add_member(side, "figures")
            if patch:
                _append(side / "Cargo.toml", f'[patch.crates-io.{self.name}]\npath = "."')

    def add_user(self, name, version, sha256):
        """Adds another crate of the registry on either side, which uses this one: as a member of its workspace, so that its tests run."""
        archive = _fetched(name, version, sha256)
        for side in (self.before, self.after):
            _unpack(archive, f"{name}-{version}", side / name)
            _add_member(side, name)
        self._users.append(name)

    def write(self):
        """Stores the edited files."""
        for path, source in self._sources.items():
            path.write_text(source.text)

    def lines(self):
        """Returns how many lines the edit adds and removes, comments and our own files in the crate included, but not the figures."""
        added = removed = 0
        for after in sorted(path for path in self.after.rglob("*") if path.suffix in {".rs", ".toml", ".cl", ".cu", ".cpp", ".cuh"}):
            before = self.before / after.relative_to(self.after)
            if after.relative_to(self.after).parts[0] in self._users:
                continue
            old = before.read_text().splitlines() if before.exists() else []
            changes = difflib.SequenceMatcher(None, old, after.read_text().splitlines(), autojunk=False).get_opcodes()
            added += sum(last - first for what, _, _, first, last in changes if what != "equal")
            removed += sum(last - first for what, first, last, _, _ in changes if what != "equal")
        return added, removed

    def _source(self, path):
        if path not in self._sources:
            self._sources[path] = Source(path.name, path.read_text())
        return self._sources[path]


class Source:
    """The text of one file in Rust, edited by the names of its items.

    An item is named as in Rust: `create_buffer`, or `Program::create_buffer` where a function of that name is in an `impl`, `trait`
    or `mod` of the name before it. A keyword says which kind is meant, where a name has several: `struct Buffer`, `fn new`. Items
    without a name are named by how they begin, as far as no other item begins so: `use std::ptr`, `impl<T> Drop for Buffer<T>`.
    """

    def __init__(self, path, text):
        self.path, self.text = path, text

    def replace_body(self, name, body):
        """Replaces what is between the braces of an item, and leaves its documentation and signature."""
        item = self._item(name, braces=True)
        self._put(item.open + 1, item.end - 1, "\n" + _indented(body, self._indent(item) + 4) + " " * self._indent(item))

    def replace_item(self, name, text):
        """Replaces a whole item, its documentation and attributes included."""
        item = self._item(name)
        self._put(item.start, item.end, _indented(text, self._indent(item)).strip())

    def delete_item(self, name):
        """Deletes an item, its documentation and attributes included."""
        item = self._item(name)
        start, end = item.start - self._indent(item), item.end + (self.text[item.end : item.end + 1] == "\n")
        # One empty line is left between two others, and none at the beginning of a block.
        if self.text[:start].endswith(("\n\n", "{\n")) and self.text.startswith("\n", end):
            end += 1
        self._put(start, end, "")

    def insert_before(self, name, text):
        """Inserts text before an item and its documentation."""
        item = self._item(name)
        start = item.start - self._indent(item)
        self._put(start, start, _indented(text, self._indent(item)) + _between(text))

    def insert_after(self, name, text):
        """Inserts text after an item."""
        item = self._item(name)
        self._put(item.end, item.end, "\n" + _between(text) + _indented(text, self._indent(item)).rstrip("\n"))

    def insert_inside(self, name, text, literal=None):
        """Inserts text right after the brace that opens an item: a struct's first field, a function's first statement. With `literal`,
        after the brace of the value `literal { ... }` in the item instead."""
        item = self._item(name, braces=True)
        at, indent = item.open + 1, self._indent(item) + 4
        if literal is not None:
            found = list(re.finditer(rf"(?<![\w:>&]\s)\b{re.escape(literal)}\s*\{{", _masked(self.text)[item.open + 1 : item.end]))
            _exactly(1, found, f"{literal} {{ ... }} in {name}", self.path)
            at += found[0].end()
            indent = self._indent_of(at) + 4
        self._put(at, at, "\n" + _indented(text, indent).rstrip("\n"))

    def insert_before_let(self, name, variable, text):
        """Inserts text before the statement of a function that binds a variable."""
        start, _ = self._let(name, variable)
        start = self.text.rfind("\n", 0, start) + 1
        self._put(start, start, _indented(text, self._indent_of(start)))

    def replace_let(self, name, variable, text):
        """Replaces the statement of a function that binds a variable."""
        start, end = self._let(name, variable)
        self._put(start, end, _indented(text, self._indent_of(start)).strip())

    def append_inside(self, name, text):
        """Inserts text before the brace that closes an item: another method of an `impl`."""
        item = self._item(name, braces=True)
        close = self.text.rfind("\n", 0, item.end) + 1
        self._put(close, close, _between(text) + _indented(text, self._indent(item) + 4))

    def rename(self, name, old, new, times=1):
        """Puts the name, path or type `new` in the place of `old` within an item, where it is found exactly `times` times."""
        item = self._item(name)
        before, after = (r"\b" if old[0].isalnum() else ""), (r"\b" if old[-1].isalnum() else "")
        masked = _masked(self.text)
        found = re.finditer(before + re.escape(old) + after, self.text[item.start : item.end])
        # Not in comments or within strings.
        found = [match for match in found if masked[item.start + match.start()] == match[0][0]]
        _exactly(times, found, f"{old} in {name}", self.path)
        for match in reversed(found):
            self._put(item.start + match.start(), item.start + match.end(), new)

    def _item(self, name, braces=False):
        items = list(_items(self.text))
        found = [item for item in items if item.header == name] or [item for item in items if item.is_named(name)]
        _exactly(1, found, name, self.path)
        if braces and found[0].open is None:
            raise EditError(f"{self.path}: {name} has no braces")
        return found[0]

    def _let(self, name, variable):
        """Returns where the statement begins and ends that binds a variable in a function."""
        item, masked = self._item(name, braces=True), _masked(self.text)
        found = list(re.finditer(rf"\blet (mut )?{re.escape(variable)}\b", masked[item.open : item.end]))
        _exactly(1, found, f"let {variable} in {name}", self.path)
        start = at = item.open + found[0].start()
        while masked[at] != ";":
            at = _past(masked, at, item.end) if masked[at] in "([{" else at + 1
        return start, at + 1

    def _indent(self, item):
        return item.start - (self.text.rfind("\n", 0, item.start) + 1)

    def _indent_of(self, at):
        line = self.text[self.text.rfind("\n", 0, at) + 1 :]
        return len(line) - len(line.lstrip(" "))

    def _put(self, start, end, text):
        self.text = self.text[:start] + text + self.text[end:]


class Item:
    """An item of a file: from `start` (its documentation) to `end`, its braces opening at `open`, if it has braces."""

    def __init__(self, header, start, open_, end, container):
        self.header, self.start, self.open, self.end, self.container = header, start, open_, end, container
        named = re.search(r"\b(fn|struct|enum|union|trait|mod|type|const|static)\s+(?!fn\b)(?:mut\s+)?(\w+)|\b(macro_rules)!\s*(\w+)", header)
        self.kind, self.name = (None, None)
        if re.match(r"(unsafe\s+)?impl\b", header):
            self.kind = "impl"
            of = re.sub(r"<[^<>]*>", "", re.sub(r"<[^<>]*>", "", re.sub(r"<[^<>]*>", "", header.replace("->", "")))).split(" where ")[0]
            self.name = re.findall(r"\w+", of)[-1]
        elif re.match(r"(pub(\([^)]*\))?\s+)?use\b", header):
            self.kind = "use"
        elif named:
            self.kind, self.name = named[1] or named[3], named[2] or named[4]

    def is_named(self, wanted):
        if self.kind in ("use", "impl") and re.match(r"(pub\b.*|unsafe )?(use|impl)\b", wanted):
            return re.match(re.escape(wanted) + r"(?!\w)", self.header) is not None
        kind, _, path = wanted.rpartition(" ")
        container, _, name = path.rpartition("::")
        return (
            self.kind != "impl"
            and self.name == name
            and kind in ("", self.kind)
            and (not container or (self.container is not None and self.container.name == container))
        )


def _items(text, masked=None, start=0, end=None, container=None):
    """Yields the items of a text, and those within its modules, traits and implementations."""
    masked = masked or _masked(text)
    at, end = start, len(text) if end is None else end
    while True:
        at = _skip_spaces(masked, at, end)
        if at >= end:
            return
        if masked.startswith("#!", at):
            at = _past(masked, masked.index("[", at), end)
            continue
        first = at
        while masked.startswith("#", at):
            at = _skip_spaces(masked, _past(masked, masked.index("[", at), end), end)
        head, open_ = at, None
        value = re.compile(r"(pub(\([^)]*\))?\s+)?(use|static|type|const\s+(?!unsafe|fn|extern|async))\b|(pub(\([^)]*\))?\s+)?const\s+_").match(masked, at)
        while at < end and masked[at] != ";":
            if masked[at] in "([{":
                if masked[at] == "{" and not value:
                    open_ = at
                at = _past(masked, at, end)
                if open_ is not None:
                    break
            else:
                at += 1
        else:
            at += 1
        header = " ".join(text[head : open_ if open_ is not None else at - 1].split())
        item = Item(header, _with_comments(text, first), open_, at, container)
        yield item
        if item.kind in ("impl", "trait", "mod") and open_ is not None:
            yield from _items(text, masked, open_ + 1, at - 1, item)


def _with_comments(text, start):
    """Returns where the comments right above `start` begin, documentation among them."""
    while True:
        line = text.rfind("\n", 0, start)
        above = text[text.rfind("\n", 0, max(line, 0)) + 1 : max(line, 0)]
        if line < 0 or not above.lstrip().startswith("//") or above.lstrip().startswith("//!"):
            return start
        start = line - len(above.lstrip())


def _past(masked, at, end):
    """Returns the place after the bracket that closes the one at `at`."""
    depth = 0
    for place in range(at, end):
        depth += (masked[place] in "([{") - (masked[place] in ")]}")
        if depth == 0:
            return place + 1
    raise EditError("a bracket is not closed")


def _skip_spaces(masked, at, end):
    while at < end and masked[at].isspace():
        at += 1
    return at


_OPAQUE = re.compile(
    r"""//[^\n]*|/\*.*?\*/|b?r(?P<hashes>\#*)"(?:.*?)"(?P=hashes)|b?"(?:\\.|[^"\\])*"|b?'(?:\\[^\n]+?|[^'\\\n])'""", re.DOTALL | re.VERBOSE
)


def _masked(text):
    """Returns the text with spaces in the place of comments, strings and characters, at the same length."""
    return _OPAQUE.sub(lambda match: "".join("\n" if letter == "\n" else " " for letter in match[0]), text)


def _indented(text, spaces):
    """Returns the lines of our text at that depth, and a newline after the last."""
    lines = text.strip("\n").rstrip().splitlines()
    common = min((len(line) - len(line.lstrip()) for line in lines if line.strip()), default=0)
    return "".join((" " * spaces + line[common:]).rstrip() + "\n" for line in lines)


def _between(text):
    """Returns the empty line that stands between a text and an item beside it, where the text ends with a brace."""
    return "\n" if text.rstrip().endswith("}") else ""


def _exactly(times, found, what, path):
    if len(found) != times:
        raise EditError(f"{path}: `{what}` is there {len(found)} times, and {times} was expected")


def _add_member(side, name):
    manifest = side / "Cargo.toml"
    before, _, after = manifest.read_text().partition("\n[workspace]\n")
    members = re.match(r"members = (\[.*\])\n", after)
    names = [*(json.loads(members[1]) if members else []), name]
    manifest.write_text(f"{before}\n[workspace]\nmembers = {json.dumps(names)}\n{after[members.end() if members else 0 :]}")


def _append(manifest, text):
    with manifest.open("a") as file:
        file.write(f"\n{text}\n")


def _fetched(name, version, sha256):
    """Returns the crate's archive, which is downloaded once."""
    archive = CLIENTS / "archives" / f"{name}-{version}.crate"
    if not archive.exists():
        archive.parent.mkdir(parents=True, exist_ok=True)
        with urllib.request.urlopen(f"https://static.crates.io/crates/{name}/{name}-{version}.crate") as answer:
            content = answer.read()
        _check(content, sha256, archive.name)
        archive.write_bytes(content)
    _check(archive.read_bytes(), sha256, archive.name)
    return archive


def _check(content, sha256, name):
    found = hashlib.sha256(content).hexdigest()
    if found != sha256:
        raise EditError(f"{name} has the checksum {found}, and {sha256} was expected")


def _unpack(archive, inner, folder):
    """Unpacks the archive's folder `inner` as `folder`, without what was there before."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.parent.mkdir(parents=True, exist_ok=True)
    staging = folder.with_name(folder.name + ".new")
    shutil.rmtree(staging, ignore_errors=True)
    with tarfile.open(archive) as files:
        # Its checksum is known. Python 3.11 of Debian 12 has no filters.
        files.extractall(staging, **({"filter": "data"} if hasattr(tarfile, "data_filter") else {}))
    (staging / inner).rename(folder)
    staging.rmdir()
