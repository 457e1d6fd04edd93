# SPDX-License-Identifier: Apache-2.0
"""Pure functions of one block's text; no Dask, no files.

Hot ones are compiled with numba over the Arrow string buffers, with the GIL released. Modules that hold compiled
functions (`word_counts`, `unicode_scan`) import numba, so they are imported inside functions, never at the top.
"""

import logging
import os
import stat
import sys
import tempfile
from pathlib import Path

LOG = logging.getLogger("curator_df")


def choose_cache() -> str | None:
    """Set a folder for compiled kernels if numba would find none; return it, or None if numba finds one by itself.

    Numba tries the folder of the sources and the user's home, and raises an error if it can write to neither. The chosen folder,
    in the directory for temporary files, belongs to this user alone, because its contents are executed.
    """
    if os.environ.get("NUMBA_CACHE_DIR"):
        return None
    sources = Path(__file__).parent
    beside = sources / "__pycache__"
    home = Path(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")) / "numba"
    if os.access(beside if beside.exists() else sources, os.W_OK) or _can_be_made(home):
        return None
    try:
        folder = Path(tempfile.gettempdir()) / f"curator-df-kernels-{os.getuid()}"
    except FileNotFoundError:  # `start_cluster` reports the missing folder
        return None
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        found = os.lstat(folder)
    except OSError:
        found = None
    is_ours = found is not None and stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid()
    if found is None or not is_ours or stat.S_IMODE(found.st_mode) & 0o077:
        folder = Path(tempfile.mkdtemp(prefix=f"{folder.name}-"))  # owned by somebody else, or writable by others
    os.environ["NUMBA_CACHE_DIR"] = str(folder)  # also for processes that this one starts
    if "numba" in sys.modules:
        sys.modules["numba"].config.CACHE_DIR = str(folder)
    LOG.warning(
        "Compiled kernels are kept in %s, because neither %s nor %s is writable. After a restart of the machine they are "
        "compiled again. Set NUMBA_CACHE_DIR to your own folder to keep them.",
        folder,
        beside,
        home,
    )
    return str(folder)


def _can_be_made(folder: Path) -> bool:
    """Return whether this user can write to a folder, or create it."""
    if not folder.is_absolute():  # a user without a home
        return False
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    return folder.is_dir() and os.access(folder, os.W_OK)


choose_cache()
