"""The command ``binpool``, as ``python -m binpool``: ``python -m binpool run --report -- python program.py``, for example."""

import os
import pathlib
import sys
import sysconfig

# Where pip puts programs of packages, of this environment and of the user.
_FOLDERS = [sysconfig.get_path("scripts"), sysconfig.get_path("scripts", f"{os.name}_user")]


def main() -> None:
    """Become the command."""
    for folder in _FOLDERS:
        command = pathlib.Path(folder) / "binpool"
        if command.exists():
            os.execv(command, ["binpool", *sys.argv[1:]])
    sys.exit("binpool: the command is a separate package: pip install binpool-command")


if __name__ == "__main__":
    main()
