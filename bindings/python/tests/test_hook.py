"""The hook of ``binpool run``: each way to start Python loads it, and the program notices nothing else.

PyTorch is a stand-in here, and in some tests that of Debian, which is without CUDA. That tensors come from the pool is tested over PyTorch
with CUDA: ``scripts/torch``.
"""

import os
import pathlib
import subprocess
import sys
import sysconfig
import textwrap

import pytest
from conftest import HERE

import binpool

STAND_IN = HERE / "torch_stand_in"

# Says whether the hook has told the package of PyTorch in this process.
ASK = "import sys, torch; print('told' if 'binpool._run' in sys.modules else 'not told')"

WITHOUT_CUDA = "binpool: PyTorch is left alone: this one is built without CUDA\n"


def run(*command, option="--pool", path=STAND_IN, **variables):
    """Run a command under ``binpool run``, and return its output and what was said."""
    folders = [str(path), os.environ.get("PYTHONPATH", "")] if path else [os.environ.get("PYTHONPATH", "")]
    environment = dict(os.environ, PYTHONPATH=os.pathsep.join(filter(None, folders)), **variables)
    words = [sys.executable, "-m", "binpool", "run", *option.split(), "--", *map(str, command)]
    ran = subprocess.run(words, env=environment, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout, ran.stderr


def program(folder, source, name="program.py"):
    file = folder / name
    file.write_text(textwrap.dedent(source))
    return file


def test_a_script_a_module_and_a_command_are_told_of(tmp_path):
    script = program(tmp_path, ASK)
    for words in [[script], ["-m", "program"], ["-c", ASK], ["-u", "-B", script]]:
        told, said = run(sys.executable, *words, path=f"{STAND_IN}{os.pathsep}{tmp_path}")
        assert told == "told\n", words
        assert WITHOUT_CUDA in said


def test_a_program_that_imports_neither_is_not_touched():
    ask = "import sys; print('binpool' in sys.modules, 'importlib.util' in sys.modules)"
    told, said = run(sys.executable, "-c", ask)
    plain = subprocess.check_output([sys.executable, "-c", ask], text=True)
    assert told == plain
    assert "left alone" not in said


def test_modules_are_found_as_they_are_without_the_hook():
    ask = """
    import importlib.util, sys
    spec = importlib.util.find_spec("torch")
    print(spec.origin, type(spec.loader).__name__, [folder for folder in sys.path if "binpool-" in folder])
    import torch
    print(torch.__spec__.loader is torch.__loader__, importlib.reload(torch) is torch, importlib.util.find_spec("nothing"))
    """
    told, _ = run(sys.executable, "-c", textwrap.dedent(ask))
    environment = dict(os.environ, PYTHONPATH=str(STAND_IN))
    plain = subprocess.check_output([sys.executable, "-c", textwrap.dedent(ask)], env=environment, text=True)
    assert told == plain


def test_the_sitecustomize_of_the_program_is_run_first(tmp_path):
    program(tmp_path, "import builtins, sys\nbuiltins.seen = 'torch' in sys.modules", "sitecustomize.py")
    ask = "import sitecustomize; print(seen, sitecustomize.__file__);" + ASK
    told, _ = run(sys.executable, "-c", ask, path=f"{STAND_IN}{os.pathsep}{tmp_path}")
    assert told == f"False {tmp_path}/sitecustomize.py\ntold\n"


def test_one_that_fails_says_so_and_the_hook_works(tmp_path):
    program(tmp_path, "1 / 0", "sitecustomize.py")
    told, said = run(sys.executable, "-c", ASK, path=f"{STAND_IN}{os.pathsep}{tmp_path}")
    assert told == "told\n"
    assert "ZeroDivisionError" in said


def test_one_that_imports_torch_itself_is_told_of(tmp_path):
    program(tmp_path, "import torch", "sitecustomize.py")
    told, _ = run(sys.executable, "-c", "import sys; print(sys.modules['torch'].__name__)", path=f"{STAND_IN}{os.pathsep}{tmp_path}")
    assert told == "torch\n"


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_processes_of_multiprocessing_are_told_of(tmp_path, method):
    script = program(
        tmp_path,
        f"""
        import multiprocessing

        def ask(_):
            {ASK}

        if __name__ == "__main__":
            with multiprocessing.get_context("{method}").Pool(2) as pool:
                pool.map(ask, range(1))
        """,
    )
    told, said = run(sys.executable, "-u", script)
    assert told == "told\n"
    assert said.count(WITHOUT_CUDA) == 1


def test_a_virtual_environment_without_the_package_has_that_of_the_command(tmp_path):
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "environment"], check=True)
    told, said = run(tmp_path / "environment/bin/python", "-c", ASK + "; import binpool; print(binpool.__file__)")
    assert told == f"told\n{sysconfig.get_path('platlib')}/binpool/__init__.py\n"
    assert WITHOUT_CUDA in said


def test_without_the_package_the_program_runs_and_a_line_says_why(tmp_path):
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "environment"], check=True)
    python = tmp_path / "environment/bin/python"
    command = pathlib.Path(sysconfig.get_path("scripts")) / "binpool"
    environment = dict(os.environ, PYTHONPATH=str(STAND_IN))
    words = [command, "run", "--pool", "--", python, "-c", ASK]
    ran = subprocess.run(words, env=environment, capture_output=True, text=True, check=True)
    assert ran.stdout == "not told\n"
    assert f"PyTorch is left alone: {python} has no package binpool: docs/guide/python.md says how to install it" in ran.stderr


def test_a_python_that_is_isolated_is_left_alone_and_a_line_says_so():
    for option in ["-I", "-E", "-S"]:
        told, said = run(sys.executable, option, "-c", "import sys; print(any(type(it).__name__ == 'Waiting' for it in sys.meta_path))")
        assert told == "False\n", option
        assert f"{option} loads nothing from outside: PyTorch and CuPy are left alone" in said


# As wrapt's: it is asked first, and asks all others.
ASKING = """
import importlib.util, sys

class Asks:
    asked = set()
    def find_spec(self, name, path=None, target=None):
        if name in self.asked:
            return None
        self.asked.add(name)
        try:
            return importlib.util.find_spec(name)
        finally:
            self.asked.discard(name)

sys.meta_path.insert(0, Asks())
"""


def test_another_finder_that_asks_all_others_changes_nothing(tmp_path):
    program(tmp_path, ASKING, "sitecustomize.py")
    counted = "import sys, torch; import binpool._run as run; print(len(run._known)); import pickle; pickle.dumps(torch.__spec__)"
    told, said = run(sys.executable, "-c", counted, path=f"{STAND_IN}{os.pathsep}{tmp_path}")
    assert told == "1\n" and said.count(WITHOUT_CUDA) == 1


def test_modules_of_the_program_that_are_named_like_ours_are_left_alone(tmp_path):
    script = program(tmp_path, f"print(__name__)\n{ASK}", "binpool.py")
    told, said = run(sys.executable, script)
    assert told == "__main__\nnot told\n"
    assert "has no package binpool" in said
    script.unlink()
    program(tmp_path, "mine = 7", "torch.py")
    told, said = run(sys.executable, "-c", "import torch; print(torch.mine)", path=tmp_path)
    assert told == "7\n" and "left alone" not in said


def test_what_pytorch_cannot_have_is_said_in_a_line(tmp_path):
    for variables, expected in [
        ({"STAND_IN_VERSION": "2.30.1"}, "binpool knows PyTorch 2.9 to 2.15, and this is 2.30.1\n"),
        ({"CXX": "no-compiler"}, "there is no C++ compiler `no-compiler`: install one, or name it by the variable CXX\n"),
        ({"CXX": "false"}, "the compiler says:"),
    ]:
        expected = f"PyTorch has its own allocator, not binpool's: {expected}"
        script = program(tmp_path, f"import subprocess, sys\n{ASK}\nsubprocess.run([sys.executable, '-c', 'import torch'], check=True)")
        variables = {"STAND_IN_CUDA": "13.0", "BINPOOL_CACHE_DIR": str(tmp_path / "cache"), **variables}
        told, said = run(sys.executable, script, **variables)
        assert told == "told\n"
        assert said.count(expected) == 1, said


def test_a_run_within_a_run_is_one():
    command = pathlib.Path(sysconfig.get_path("scripts")) / "binpool"
    ask = ASK + "; print([type(it).__name__ for it in sys.meta_path].count('Waiting'))"
    told, _ = run(command, "run", "--pool", "--", sys.executable, "-c", ask)
    assert told == "told\n1\n"


def test_a_kernel_of_jupyter_is_told_of(tmp_path):
    script = program(
        tmp_path,
        f"""
        from jupyter_client.manager import start_new_kernel

        manager, client = start_new_kernel(kernel_name="python3")
        client.execute_interactive("{ASK}")
        client.stop_channels()
        manager.shutdown_kernel()
        """,
    )
    told, _ = run(sys.executable, script)
    assert told == "told\n"


def test_a_framework_with_a_switch_is_named_unless_it_is_set(tmp_path):
    program(tmp_path, "", "jax.py")
    program(tmp_path, "", "tensorflow.py")
    names = ["XLA_PYTHON_CLIENT_ALLOCATOR", "XLA_PYTHON_CLIENT_PREALLOCATE", "TF_GPU_ALLOCATOR"]
    ask = f"import jax, tensorflow, os; print(*map(os.environ.get, {names}))"
    by = "XLA_PYTHON_CLIENT_ALLOCATOR=cuda_async XLA_PYTHON_CLIENT_PREALLOCATE=false"
    named = f"JAX has an allocator of its own: with {by}, or --switch, it allocates from the pool\n"
    told, said = run(sys.executable, "-c", ask, path=tmp_path)
    assert told == "None None None\n"
    assert named in said and "TF_GPU_ALLOCATOR=cuda_malloc_async" in said
    told, said = run(sys.executable, "-c", ask, path=tmp_path, XLA_PYTHON_CLIENT_ALLOCATOR="platform")
    assert named not in said
    told, said = run(sys.executable, "-c", ask, path=tmp_path, option="--pool --switch", TF_GPU_ALLOCATOR="mine")
    assert told == "cuda_async false mine\n"
    assert "has an allocator of its own" not in said
    told, _ = run(sys.executable, "-c", ask, path=tmp_path, option="--pool --switch", XLA_PYTHON_CLIENT_PREALLOCATE="true")
    assert told == "cuda_async true cuda_malloc_async\n"


def cupy_recorded(tmp_path, driver, source, name="program.py"):
    """Run a program over the stand-in for CuPy: what it prints, what is said, and the lines of its recording."""
    recording = tmp_path / "out.trace"
    paths = {"path": HERE / "cupy_stand_in", "LD_LIBRARY_PATH": driver["LD_LIBRARY_PATH"]}
    told, said = run(sys.executable, program(tmp_path, source, name), option=f"--pool --record {recording} --report", **paths)
    return told, said, recording.read_text().splitlines()


def test_cupy_is_pooled_and_recorded_array_by_array(tmp_path, driver):
    source = """
    import threading
    import cupy

    def work():
        pool = cupy.get_default_memory_pool()
        for size in [3000, 5000, 3000]:
            block = pool.malloc(size)

    work()
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    print(type(cupy.get_default_memory_pool()).__module__)
    """
    told, said, lines = cupy_recorded(tmp_path, driver, source)
    assert told == "binpool.cupy\n"
    assert [line.split()[2] for line in lines if line.startswith("a ")] == ["3000", "5000", "3000"] * 2
    assert len([line for line in lines if line.startswith("f ")]) == 6
    stacks = dict(reversed([line.split(" ", 2)[1:] for line in lines if line.startswith("k ")]))
    assert stacks and all("in work" in innermost for innermost in stacks.values()), stacks
    assert "h device stand-in" in lines and "in work" in said and "array" in said, said


def test_each_array_of_cupy_has_a_stack_that_a_reader_finds(tmp_path, driver):
    source = """
    import atexit
    import cupy
    pool = cupy.get_default_memory_pool()
    block = pool.malloc(3000)
    atexit.register(pool.malloc, 5000)
    """
    # The path of the program begins like that of the package.
    (tmp_path / "binpool").symlink_to(pathlib.Path(binpool.__file__).parent)
    _, _, lines = cupy_recorded(tmp_path, driver, source, "binpool_train.py")
    known = {line.split()[1] for line in lines if line.startswith("k ")}
    used = [line.split()[6] for line in lines if line.startswith("a ")]
    assert len(used) == 2 and known.issuperset(used), lines
    assert any("binpool_train.py:5 in <module>" in line for line in lines), lines


def test_an_empty_array_of_cupy_is_no_request(tmp_path, driver):
    _, _, lines = cupy_recorded(tmp_path, driver, "import cupy; cupy.get_default_memory_pool().malloc(0)")
    assert not [line for line in lines if line[:2] in ("a ", "o ")], lines


# Of Debian: PyTorch for CPU, in another Python than the package's.
CPU = "/usr/bin/python3"


def test_real_pytorch_is_told_of_once_it_is_whole():
    told, said = run(CPU, "-c", ASK + "; print(float((torch.ones(3) * 2).sum()))", path=None)
    assert told == "told\n6.0\n"
    assert WITHOUT_CUDA in said


def test_workers_of_a_dataloader_are_told_of(tmp_path):
    script = program(
        tmp_path,
        """
        import sys
        import torch

        class Numbers(torch.utils.data.Dataset):
            def __len__(self):
                return 4
            def __getitem__(self, index):
                assert "binpool._run" in sys.modules
                return torch.tensor(index)

        if __name__ == "__main__":
            for method in ["fork", "spawn"]:
                loader = torch.utils.data.DataLoader(Numbers(), num_workers=2, multiprocessing_context=method)
                print(sum(loader).item())
        """,
    )
    told, said = run(CPU, script, path=None)
    assert told == "6\n6\n"
    assert said.count(WITHOUT_CUDA) == 1


def test_processes_of_torchrun_are_told_of(tmp_path):
    script = program(tmp_path, f"import os; assert os.environ['WORLD_SIZE'] == '2'\n{ASK}")
    # Without its own default, which Debian's version does not understand.
    options = ["--nproc_per_node", 2, "--redirects", "0:1,1:1", "--tee", "0:1,1:1", "--log_dir", tmp_path / "logs"]
    told, said = run(CPU, "-m", "torch.distributed.run", *options, script, path=None)
    assert sorted(told.splitlines()) == ["[default0]:told", "[default1]:told"]
    assert said.count(WITHOUT_CUDA) == 1
