"""Builds the folder ``torch_allocator`` against the installed PyTorch, once for each version of both."""

import hashlib
import os
import pathlib
import platform
import shlex
import shutil
import subprocess
import tempfile

import torch
from torch.utils import cpp_extension

SOURCES = pathlib.Path(__file__).with_name("torch_allocator")
FLAGS = ["-std=c++17", "-O2", "-fPIC", "-shared", "-fvisibility=hidden"]


class BuildError(RuntimeError):
    """Why there is no library."""


def library() -> pathlib.Path:
    """Return the built library, from the cache if it is there."""
    facts = [source.read_text() for source in sorted(SOURCES.iterdir())]
    facts += [torch.__version__, str(torch.version.git_version), str(torch.version.cuda), platform.machine(), *_definitions(), *FLAGS]
    digest = hashlib.sha256("\0".join(facts).encode()).hexdigest()
    name = f"torch_allocator-{torch.__version__}-{digest[:16]}.so"
    folder = _cache()
    built = folder / name
    if built.exists():  # Also in a folder that others have filled, and that this process cannot write.
        return built
    try:
        folder.mkdir(parents=True, exist_ok=True)
        # Other processes may build at the same time: each does so under a name of its own.
        own = tempfile.TemporaryDirectory(dir=folder)
    except OSError as error:
        raise BuildError(f"{folder} cannot be written ({error.strerror}): set BINPOOL_CACHE_DIR to another folder") from error
    with own:
        _compile(pathlib.Path(own.name) / name)
        os.replace(pathlib.Path(own.name) / name, built)
    return built


def _cache() -> pathlib.Path:
    if folder := os.environ.get("BINPOOL_CACHE_DIR"):
        return pathlib.Path(folder)
    if cache := os.environ.get("XDG_CACHE_HOME"):
        return pathlib.Path(cache) / "binpool"
    try:
        return pathlib.Path.home() / ".cache" / "binpool"
    except RuntimeError as error:  # In containers, the user may have neither HOME nor a line in /etc/passwd.
        raise BuildError("there is no home folder for the built library: set BINPOOL_CACHE_DIR to a folder") from error


def _compile(to: pathlib.Path) -> None:
    compiler = shlex.split(os.environ.get("CXX", "")) or ["c++"]
    if not shutil.which(compiler[0]):
        raise BuildError(f"there is no C++ compiler `{compiler[0]}`: install one, or name it by the variable CXX")
    torch_folder = pathlib.Path(torch.__file__).parent
    includes = [flag for folder in [*cpp_extension.include_paths(), *_cuda_headers()] for flag in ("-isystem", str(folder))]
    libraries = [f"-L{torch_folder / 'lib'}", "-lc10", "-lc10_cuda", *_loaded()]
    command = [*compiler, *FLAGS, *_definitions(), *includes, str(SOURCES / "allocator.cpp"), "-o", str(to), *libraries]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        errors = [line for line in done.stderr.splitlines() if "error" in line] or done.stderr.splitlines()
        raise BuildError(f"the compiler says: {' / '.join(errors[:3])} (the command: {shlex.join(command)})")


def _definitions() -> list[str]:
    major, minor = (int(part) for part in torch.__version__.split(".")[:2])
    return [f"-DBINPOOL_TORCH={major * 100 + minor}", f"-D_GLIBCXX_USE_CXX11_ABI={int(torch._C._GLIBCXX_USE_CXX11_ABI)}"]


def _cuda_headers() -> list[pathlib.Path]:
    """Return the folders that may have CUDA's headers. The wheels of PyTorch's dependencies lack some, which Triton has."""
    site = pathlib.Path(torch.__file__).parent.parent
    folders = [*sorted(site.glob("nvidia/cu*/include"), reverse=True), site / "nvidia" / "cuda_runtime" / "include"]
    if cpp_extension.CUDA_HOME:
        folders.append(pathlib.Path(cpp_extension.CUDA_HOME) / "include")
    folders.append(site / "triton" / "backends" / "nvidia" / "include")
    return [folder for folder in folders if folder.is_dir()]


def _loaded() -> list[str]:
    """Return the libraries of CUDA and of C++ that PyTorch has loaded.

    A compiler that finds only a static library of C++ would link a second one in, and streams and exceptions of two do not work together.
    """
    with open("/proc/self/maps", encoding="utf-8", errors="replace") as maps:
        files = {line.split(maxsplit=5)[-1].strip() for line in maps if "/lib" in line}
    return [file for name in ("libcudart.so", "libstdc++.so") for file in sorted(files) if f"/{name}" in file]
