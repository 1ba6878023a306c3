"""Compiled programs kept on disk, so that the next process does not compile them again."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import jax
from jax.experimental.compilation_cache.compilation_cache import reset_cache


def enable_compilation_cache(folder: str | os.PathLike[str] | None = None) -> Path:
    """Turn on JAX's persistent compilation cache, for programs of any size.

    It is a setting of the whole process, and serves all that JAX compiles in it from then on: call it before the first
    fit.

    Args:
        folder: where compiled programs are kept; by default `jaxgen` in the user's cache folder (`XDG_CACHE_HOME`, or
            `.cache` in the home folder). It may be deleted at any time.

    Returns:
        The folder.

    Raises:
        OSError: if the folder cannot be made, or nothing be written into it.
        TypeError: for a folder that is no path.
        ValueError: for one that is a URL.

    Example:
        >>> import tempfile, jaxgen as jg
        >>> jg.enable_compilation_cache(tempfile.mkdtemp()).is_dir()  # doctest: +SKIP
        True
    """
    if not isinstance(folder, (str, os.PathLike, type(None))):
        raise TypeError(f"folder must be a path, such as '~/.cache/jaxgen'; found {folder!r}.")
    if "://" in str(folder):
        raise ValueError(f"folder must be on a file system; found {folder!r}. For it set JAX_COMPILATION_CACHE_DIR.")
    if folder is None:
        path = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "jaxgen"
    else:
        path = Path(folder).expanduser()
    path.mkdir(parents=True, exist_ok=True)
    tempfile.TemporaryFile(dir=path).close()
    reset_cache()  # JAX would go on with the folder that it has opened
    jax.config.update("jax_compilation_cache_dir", str(path))
    # By default JAX keeps only what took a second to compile; here many programs take a tenth of one each.
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
    return path
