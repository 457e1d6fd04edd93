# SPDX-License-Identifier: Apache-2.0
"""Compile kernels into numba's on-disk cache: ``python -m curator_df.kernels.warm``.

This runs in a short-lived process before a task needs them, so that no worker compiles. Measured, beyond the import of
numba (0.7 s, 67 MB): the basic group takes 12 s to compile and 0.7 s to load; lines 7 s, n-grams 22 s, C4 19 s; and in seconds of
CPU, while other work ran, characters 9, cleaning 4, web 9, DCLM 17, repeats 33 and near-duplicates 41. Resident bytes grow by at
most 330 MB. The cache is next to the package's files or, if those are not writable, in numba's own directory of the user.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import platform
import re
import sys
from collections.abc import Mapping
from importlib import import_module
from importlib.metadata import version
from pathlib import Path

_SOURCES = Path(__file__).parents[1]
_IMPORT = re.compile(r"^ *from curator_df\.kernels\.(\w+) import", re.MULTILINE)
BASIC = "basic"
GROUPS: Mapping[str, tuple[str, ...]] = {
    BASIC: (
        "eight_bytes",
        "json_texts",
        "murmur_hash",
        "part_bytes",
        "row_copy",
        "unicode_scan",
        "word_counts",
        "word_pass",
    ),
    "lines": ("line_counts", "line_pass"),
    "grams": ("word_reading", "short_grams", "gram_counts", "gram_pass"),
    "characters": ("character_counts",),
    "web": ("boilerplate", "line_counts", "web_lines", "web_pass"),
    "repeats": ("word_reading", "short_grams", "gram_counts", "gram_search", "gram_repeats", "repeat_pass"),
    "sentences": ("sentences", "sentence_pass"),
    "source": ("source_pass",),
    "listed_words": ("listed_words",),
    "cleaning": ("byte_search", "clean_copy"),
    "comments": ("comment_scan",),
    "contamination": ("ngram_match",),
    "cuts": ("byte_search", "cut_copy", "markdown_copy"),
    "pii": ("byte_search", "pii_scan"),
    "segments": ("byte_search", "segment_copy"),
    "tokens": (
        "borrowed",
        "token_affixes",
        "token_urls",
        "token_split",
        "token_restore",
        "token_pass",
        "token_sentences",
    ),
    "dclm": ("byte_search", "line_counts", "unicode_words", "unicode_grams", "stripped_pieces", "dclm_pass"),
    "c4": ("sentences", "c4_lines", "c4_pass", "c4_copy"),
    "near_duplicates": (
        "minhash_bands",
        "minhash_sketch",
        "murmur_lanes",
        "murmur_windows",
        "rolled_windows",
        "shingle_hashes",
        "shingle_sets",
        "union_find",
        "word_windows",
    ),
}
"""Modules with compiled functions, by group. Each has explicit signatures, so that importing it compiles or loads it. Every
worker loads the basic group; the others are for the runs whose kernels need them (`BlockKernel.compiled`)."""


def compile_group(group: str) -> None:
    """Compile, or load, the kernels of a group, and record the files of the cache that hold them."""
    for module in GROUPS[group]:
        import_module(f"curator_df.kernels.{module}")
    with contextlib.suppress(OSError):  # then the next process compiles or loads again
        stamp = _stamp(group)
        stamp.parent.mkdir(parents=True, exist_ok=True)
        written = stamp.with_suffix(f".{os.getpid()}")
        written.write_text("\n".join(sorted(_cached(stamp.parent, group))), encoding="utf-8")
        written.replace(stamp)


def is_compiled(group: str) -> bool:
    """Return, without importing numba, whether a process like this one has stored a group in the cache, and it is still there."""
    stamp = _stamp(group)
    try:
        noted = stamp.read_text(encoding="utf-8").split("\n")
    except OSError:
        return False
    return _cached(stamp.parent, group).issuperset(noted)


def sources_of(*modules: str) -> list[Path]:
    """Return the files of modules and of all kernels that they import, whose code is part of the compiled functions."""
    found: set[str] = set()
    waiting = list(modules)
    while waiting:
        module = waiting.pop()
        if module not in found:
            found.add(module)
            waiting += _IMPORT.findall((_SOURCES / f"{module}.py").read_text(encoding="utf-8"))
    return [_SOURCES / f"{module}.py" for module in sorted(found)]


def _stamp(group: str) -> Path:
    """Return the file that records a compiled group; its name depends on the sources, numba, Python and the kind of CPU."""
    about = [f"{path.name} {path.stat().st_mtime_ns} {path.stat().st_size}" for path in sources_of(*GROUPS[group])]
    about += [version("numba"), sys.version, platform.machine(), _cpu()]
    digest = hashlib.blake2b("\n".join(about).encode(), digest_size=8).hexdigest()
    given = os.environ.get("NUMBA_CACHE_DIR")
    beside = _SOURCES / "__pycache__"
    writable = os.access(beside if beside.exists() else _SOURCES, os.W_OK)
    home = Path(given) if given else beside if writable else Path.home() / ".cache" / "numba"
    return home / f"warm-{group}-{digest}.stamp"


def _cached(home: Path, group: str) -> set[str]:
    """Return the files of a group in a folder of numba's cache, next to the sources or elsewhere."""
    modules = {path.stem for path in sources_of(*GROUPS[group])}
    return {str(path.relative_to(home)) for path in home.rglob("*.nb[ic]") if path.name.partition(".")[0] in modules}


def _cpu() -> str:
    """Return the kind of CPU, because compiled code for one is useless to another."""
    with contextlib.suppress(OSError), open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:
        return "".join(sorted({line for line in file if line.startswith(("model name", "flags"))}))
    return platform.processor()
