"""A plugin of pytest: `-p binpool_for_pytest` puts binpool in the place of PyTorch's allocator before the tests are imported."""

import binpool.torch

binpool.torch.use()
