"""Recordings and pages: which files are written, and which are left alone."""

import errno
import os
import threading
import time

import pytest

import binpool


@pytest.fixture
def pool(queue):
    return binpool.MemoryPool(queue)


def test_a_recording_that_is_refused_leaves_the_file_of_the_one_that_goes_on(pool, tmp_path):
    path = tmp_path / "program.trace"
    with pool.record(path):
        for i in range(1000):
            pool(1000 + i)
        while path.stat().st_size == 0:  # Something has been written.
            time.sleep(0.01)
        with pytest.raises(binpool.Error, match="already"):
            pool.record(path)
    lines = path.read_text().splitlines()
    assert lines[0] == "h version 2" and sum(line.startswith("a ") for line in lines) == 1000


def test_a_new_recording_has_nothing_of_the_file_before(pool, tmp_path):
    path = tmp_path / "program.trace"
    path.write_text("x" * (1 << 20))
    with pool.record(path):
        pool(1000)
    assert "x" * 100 not in path.read_text()


@pytest.mark.parametrize("kind", [str, os.fsencode, lambda path: path, lambda path: Like(os.fsencode(path))])
def test_a_path_is_what_open_takes(pool, tmp_path, kind):
    trace, page = kind(tmp_path / "of été.trace"), kind(tmp_path / "of été.html")
    with pool.record(trace) as recording:
        pool(1000)
    assert recording.path == tmp_path / "of été.trace"
    recording.view(page)
    os.remove(page)
    binpool.view(trace, page)
    pool.view(page)
    assert (tmp_path / "of été.html").exists()


def test_a_name_that_is_not_utf_8_is_a_path(pool, tmp_path):
    trace = os.fsencode(tmp_path) + b"/\xff.trace"
    with pool.record(trace) as recording:
        pool(1000)
    assert os.path.exists(trace) and os.fsencode(recording.path) == trace
    recording.view(os.fsdecode(trace) + ".html")


class Like:
    def __init__(self, path):
        self.path = path

    def __fspath__(self):
        return self.path


@pytest.mark.parametrize("wrong", [5, None, Like(5), object()])
def test_what_is_no_path_is_refused(pool, wrong):
    for call in (pool.record, pool.view, lambda wrong: binpool.view(wrong, "x.html"), lambda wrong: binpool.view("x", wrong)):
        with pytest.raises(TypeError):
            call(wrong)


def test_a_path_has_no_null_byte(pool):
    for call in (pool.record, pool.view):
        with pytest.raises(ValueError, match="null byte"):
            call("a\0b.html")


@pytest.mark.parametrize("name", ["x.pdf", "x.svg", "x.html.gz", "x.HTML5", "x."])
def test_a_page_has_the_ending_of_a_page(pool, tmp_path, name):
    with pool.record(tmp_path / "program.trace") as recording:
        pool(1000)
    page = tmp_path / name
    for view in (pool.view, recording.view, lambda page: binpool.view(recording.path, page)):
        with pytest.raises(ValueError, match=r"\.html or \.htm"):
            view(page)
    assert not page.exists()


def test_a_page_is_not_written_over_its_recording(pool, tmp_path):
    path, other = tmp_path / "program.html", tmp_path / "other.html"
    with pool.record(path) as recording:
        pool(1000)
    before = path.read_text()
    os.link(path, other)
    for page in (path, other, tmp_path / ".." / tmp_path.name / "program.html"):
        for view in (recording.view, lambda page: binpool.view(path, page)):
            with pytest.raises(ValueError, match="over the recording"):
                view(page)
    assert path.read_text() == before


def test_an_error_of_a_file_has_its_number_and_its_name(pool, tmp_path):
    missing = tmp_path / "missing" / "x.html"
    calls = [pool.record, pool.view, lambda path: binpool.view(path, tmp_path / "x.html")]
    for call in calls:
        with pytest.raises(FileNotFoundError) as caught:
            call(missing)
        assert (caught.value.errno, caught.value.filename) == (errno.ENOENT, str(missing))
        assert str(caught.value) == f"[Errno 2] No such file or directory: '{missing}'"
    with pytest.raises(IsADirectoryError):
        pool.record(tmp_path)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_what_may_not_be_written_is_a_permission_error(pool, tmp_path):
    tmp_path.chmod(0o500)
    for call in (pool.record, pool.view):
        with pytest.raises(PermissionError) as caught:
            call(tmp_path / "x.html")
        assert (caught.value.errno, caught.value.filename) == (errno.EACCES, str(tmp_path / "x.html"))


def test_a_broken_compressed_recording_is_an_error_with_the_name_of_the_file(tmp_path):
    broken = tmp_path / "broken.trace.gz"
    broken.write_bytes(b"\x1f\x8b\x08\x00 and something else")
    with pytest.raises((OSError, binpool.Error), match="broken") as caught:
        binpool.view(broken, tmp_path / "x.html")
    if isinstance(caught.value, OSError):
        assert caught.value.errno and caught.value.filename == str(broken)


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="there is no /dev/full")
def test_a_full_disk_is_said_with_the_name_of_the_file(pool):
    recording = pool.record("/dev/full")
    pool(1000)
    with pytest.raises(OSError) as caught:
        recording.finish()
    assert caught.value.filename == "/dev/full"


def test_a_recording_into_a_pipe_ends_when_it_is_dropped(pool, tmp_path):
    """The thread that writes is waited for, while the thread of Python that reads runs."""
    pipe, lines, ends = tmp_path / "pipe", [], threading.Event()
    os.mkfifo(pipe)

    def read():
        with open(pipe) as file:
            ends.wait()
            lines.extend(file)

    reader = threading.Thread(target=read)
    reader.start()
    recording = pool.record(pipe)
    for i in range(20000):  # More than a pipe holds.
        pool(1000 + i)
    ends.set()
    del recording
    reader.join()
    assert sum(line.startswith("a ") for line in lines) == 20000
