"""The command ``binpool``, as ``python -m binpool``: ``python -m binpool run --report -- python program.py``, for example."""

import os
import pathlib
import shutil
import sys
import sysconfig

# Where pip puts programs of packages, of this environment and of the user.
_FOLDERS = [sysconfig.get_path("scripts"), sysconfig.get_path("scripts", f"{os.name}_user")]


def main() -> None:
    """Become the command."""
    # For programs under `binpool run` whose own Python has no such package.
    os.environ["BINPOOL_PACKAGE"] = str(pathlib.Path(__file__).absolute().parent.parent)
    here = (str(pathlib.Path(folder) / "binpool") for folder in _FOLDERS)
    elsewhere = shutil.which("binpool") or str(pathlib.Path("~/.cargo/bin/binpool").expanduser())
    for command in (*here, elsewhere):
        if os.access(command, os.X_OK):
            os.execv(command, ["binpool", *sys.argv[1:]])
    sys.exit("binpool: the command is a separate package: pip install binpool-command")


if __name__ == "__main__":
    main()
