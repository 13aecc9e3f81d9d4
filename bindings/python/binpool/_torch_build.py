"""Builds the folders ``torch_allocator`` and ``torch_tracker`` against the installed PyTorch, once for each version of both."""

import hashlib
import os
import pathlib
import platform
import shlex
import shutil
import subprocess
import tempfile

import torch

FLAGS = ["-O2", "-fPIC", "-shared", "-fvisibility=hidden"]

# The versions whose allocator the one here has the functions of.
ALLOCATOR_VERSIONS = ((2, 9), (2, 15))


class BuildError(RuntimeError):
    """Why there is no library."""


def library(name: str) -> pathlib.Path:
    """Return the library that is built of the folder of this name, from the cache if it is there."""
    if name == "torch_allocator" and not ALLOCATOR_VERSIONS[0] <= _version() <= ALLOCATOR_VERSIONS[1]:
        first, last = (".".join(map(str, version)) for version in ALLOCATOR_VERSIONS)
        raise BuildError(f"binpool knows PyTorch {first} to {last}, and this is {torch.__version__}")
    (source,) = pathlib.Path(__file__).with_name(name).glob("*.cpp")
    facts = [file.read_text() for file in sorted(source.parent.iterdir())]
    facts += [torch.__version__, str(torch.version.git_version), str(torch.version.cuda), platform.machine(), *_definitions(), *FLAGS]
    digest = hashlib.sha256("\0".join(facts).encode()).hexdigest()
    file = f"{name}-{torch.__version__}-{digest[:16]}.so"
    folder = _cache()
    built = folder / file
    if built.exists():  # Also in a folder that others have filled, and that this process cannot write.
        return built
    try:
        folder.mkdir(parents=True, exist_ok=True)
        # Other processes may build at the same time: each does so under a name of its own.
        own = tempfile.TemporaryDirectory(dir=folder)
    except OSError as error:
        raise BuildError(f"{folder} cannot be written ({error.strerror}): set BINPOOL_CACHE_DIR to another folder") from error
    with own:
        _compile(source, pathlib.Path(own.name) / file)
        os.replace(pathlib.Path(own.name) / file, built)
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


def _compile(source: pathlib.Path, to: pathlib.Path) -> None:
    from torch.utils import cpp_extension  # It takes a while, and what is built needs it no more.

    compiler = shlex.split(os.environ.get("CXX", "")) or ["c++"]
    if not shutil.which(compiler[0]):
        raise BuildError(f"there is no C++ compiler `{compiler[0]}`: install one, or name it by the variable CXX")
    torch_folder = pathlib.Path(torch.__file__).parent
    folders = [*cpp_extension.include_paths(), *_cuda_headers(cpp_extension.CUDA_HOME)]
    includes = [flag for folder in folders for flag in ("-isystem", str(folder))]
    libraries = [f"-L{torch_folder / 'lib'}", "-lc10", "-lc10_cuda", *_loaded()]
    command = [*compiler, *FLAGS, *_definitions(), *includes, str(source), "-o", str(to), *libraries]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        errors = [line for line in done.stderr.splitlines() if "error" in line] or done.stderr.splitlines()
        raise BuildError(f"the compiler says: {' / '.join(errors[:3])} (the command: {shlex.join(command)})")


def _definitions() -> list[str]:
    major, minor = _version()
    # Later headers need it.
    standard = "c++17" if (major, minor) <= (2, 11) else "c++20"
    strings = int(torch._C._GLIBCXX_USE_CXX11_ABI)
    return [f"-std={standard}", f"-DBINPOOL_TORCH={major * 100 + minor}", f"-D_GLIBCXX_USE_CXX11_ABI={strings}"]


def _version() -> tuple[int, int]:
    major, minor = (int(part) for part in torch.__version__.split(".")[:2])
    return major, minor


def _cuda_headers(home: str | None) -> list[pathlib.Path]:
    """Return the folders that may have CUDA's headers. The wheels of PyTorch's dependencies lack some, which Triton has."""
    site = pathlib.Path(torch.__file__).parent.parent
    folders = [*sorted(site.glob("nvidia/cu*/include"), reverse=True), site / "nvidia" / "cuda_runtime" / "include"]
    if home:
        folders.append(pathlib.Path(home) / "include")
    folders.append(site / "triton" / "backends" / "nvidia" / "include")
    return [folder for folder in folders if folder.is_dir()]


def _loaded() -> list[str]:
    """Return the libraries of CUDA and of C++ that PyTorch has loaded.

    A compiler that finds only a static library of C++ would link a second one in, and streams and exceptions of two do not work together.
    """
    with open("/proc/self/maps", encoding="utf-8", errors="replace") as maps:
        files = {line.split(maxsplit=5)[-1].strip() for line in maps if "/lib" in line}
    return [file for name in ("libcudart.so", "libstdc++.so") for file in sorted(files) if f"/{name}" in file]
