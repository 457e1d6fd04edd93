# SPDX-License-Identifier: Apache-2.0
"""Check whether a listing would find a file that does not exist yet: output must not become the next run's input."""

from __future__ import annotations

import fnmatch
import os
import re

URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
MAGIC = re.compile(r"[*?\[]")


def finds(entry: str, path: str, suffixes: tuple[str, ...]) -> bool:
    """Return whether an entry would find a file that does not exist yet, by the rules of `listing.list_files`.

    Parameters
    ----------
    entry : str
        Absolute directory or pattern, or a URL in its file system's form.
    path : str
        Absolute path without links, or such a URL.
    suffixes : tuple of str
        Required endings of files found in a directory; all files if empty.

    Examples
    --------
    >>> finds("/x/*.txt", "/x/new.txt", ()), finds("/x/*.txt", "/x/out/new.txt", ()), finds("/x", "/x/out/new.txt", ())
    (True, False, True)
    """
    is_remote = bool(URL.match(entry))
    parts = entry.split("/")
    fixed = next((n for n, part in enumerate(parts) if MAGIC.search(part)), len(parts))
    if os.path.isdir(entry):
        fixed = len(parts)
    root = "/".join(parts[:fixed])
    root = root if is_remote else os.path.realpath(root or "/")
    if not path.startswith(root.rstrip("/") + "/"):
        return False
    below, pattern = path[len(root.rstrip("/")) + 1 :].split("/"), parts[fixed:]
    walks = not pattern or not (is_remote or "**" in pattern)
    return _fits(pattern, below, suffixes, walks=walks)


def _fits(pattern: list[str], below: list[str], suffixes: tuple[str, ...], *, walks: bool) -> bool:
    """Return whether a pattern's parts match those of a path; the rest of the path is in a directory that is walked."""
    if not pattern:
        hidden = any(name[:1] in (".", "_") for name in below)
        return not below or (walks and not hidden and (not suffixes or below[-1].lower().endswith(suffixes)))
    part, rest = pattern[0], pattern[1:]
    if not below:
        return False
    is_seen = below[0][:1] not in (".", "_") or below[0][:1] == part[:1]
    if part == "**":
        deeper = is_seen and len(below) > 1 and _fits(pattern, below[1:], suffixes, walks=walks)
        return deeper or _fits(rest or ["*"], below, suffixes, walks=walks)
    return is_seen and fnmatch.fnmatchcase(below[0], part) and _fits(rest, below[1:], suffixes, walks=walks)
