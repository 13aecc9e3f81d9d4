"""wgpu over binpool, by its allocator: what `scripts/clients wgpu` builds, tests and measures."""

from pathlib import Path

import edit

HERE = Path(__file__).resolve().parent
TESTS = [["--no-default-features", "--features", "std,vulkan", "--test", "example"], ["-p", "figures", "--test", "memory"]]


def place():
    crate = edit.Crate("gpu-allocator", "0.28.0", "51255ea7cfaadb6c5f1528d43e92a82acb2b96c43365989a28b2d44ee38f8795")
    crate.add_figures(HERE, patch=True)
    crate.add_test("example", HERE / "example.rs")

    # All of the crate is ours then: the parts for other interfaces than Vulkan are left out.
    crate.add_dependency("binpool-gpu-allocator", path="bindings/gpu-allocator")
    crate.replace_file("src/lib.rs", HERE / "lib.rs")
    return crate
