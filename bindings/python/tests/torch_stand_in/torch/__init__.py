"""As much of PyTorch as the package asks before it builds anything."""

import os
import types

__version__ = os.environ.get("STAND_IN_VERSION", "2.11.0")
version = types.SimpleNamespace(cuda=os.environ.get("STAND_IN_CUDA"), git_version="stand-in")
cuda = types.SimpleNamespace(_lazy_call=lambda call: call())
_C = types.SimpleNamespace(_GLIBCXX_USE_CXX11_ABI=True)
