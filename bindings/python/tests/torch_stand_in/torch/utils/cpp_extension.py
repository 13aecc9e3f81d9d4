"""Where the headers are."""

CUDA_HOME = None


def include_paths() -> list[str]:
    """Return the folders of headers: none."""
    return []
