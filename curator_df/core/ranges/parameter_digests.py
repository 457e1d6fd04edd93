# SPDX-License-Identifier: Apache-2.0
"""Parameters in the form in which a journal stores them: readable, with a digest that shows whether they changed.

Only plain values are printed. For others, which may be large or secret, the type and the digest are stored.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from curator_df.core.fingerprint import fingerprint
from curator_df.files.storage import shown_path
from curator_df.files.working_files import has_working_file
from curator_df.memory.sizes import show_count

LONGEST = 60
"""Maximum number of characters of a value that are stored."""
MOST_NAMED_FILES = 1_000
"""Maximum number of files of a value that are stored by name."""
SECRET = ("password", "secret", "api_key")
Printed = dict[str, tuple[str, str]]
"""Displayed value and its digest, by name."""
EXPANDED = ("parameters", "format", "taken", "joining")
"""Names of fields that are replaced by their own fields."""


INPUT_FILES = "the list of input files (names, sizes, modification times)"
WORKING_FILES = "the list of working files with the input"
MOST_CHANGES = 8
"""Maximum number of changed parameters that an error names."""


@dataclass(frozen=True)
class Digested:
    """Value with a custom description, such as a list of files; its identity is the digest alone."""

    shown: str = field(metadata={"identity": False})
    """Description of the value, which may name what does not matter: the commit of files that are the same in another."""
    digest: str
    """Digest of the value."""


def printed(value: Any, *, without: tuple[str, ...] = ()) -> Printed:
    """Return the items of a mapping, or the identifying fields of a dataclass; those of ``parameters`` and formats are expanded.

    Files that a value names in ``digested_files`` are items of their own, so that an error names the file that changed.

    Examples
    --------
    >>> {name: shown for name, (shown, _) in printed({"seed": 1, "where": max, "columns": ["a"]}).items()}
    {'seed': '1', 'where': 'the function max', 'columns': "['a']"}
    """
    found: Printed = {}
    for name, item in _items(value).items():
        if name in without:
            continue
        if name in EXPANDED:
            found |= printed(item)
        elif isinstance(item, Digested):
            found[name] = (item.shown, item.digest)
        else:
            files = list(getattr(item, "digested_files", {}).items())[
                :MOST_NAMED_FILES
            ]  # such as the lists of `keep_urls`
            for path, digest in files:
                found[f"the file {shown_path(path)!r}"] = (f"content {digest[:8]}", digest[:16])
            found[name] = (_shown(name, item), fingerprint(item)[:16])
    return found


def printed_source(source: Any) -> Printed:
    """Return the input of a source: its files, and ``asked``, the parameters of the reader by name."""
    listing, files = getattr(source, "listing", None), {}
    if listing is not None:
        count = f"{show_count(len(listing), 'file')}, {show_count(listing.total_bytes, 'byte')}"
        name = WORKING_FILES if has_working_file(listing.paths[:1]) else INPUT_FILES
        files = {name: Digested(", ".join([count, *getattr(listing, "pins", ())]), listing.fingerprint)}
    return printed({**files, **getattr(source, "asked", {})})


def changes(was: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """Return a description of the parameters that differ; empty if none is known to differ.

    Examples
    --------
    >>> changes(printed({"seed": 1, "keep": "first"}), printed({"seed": 2, "keep": "first"}))
    'seed changed from 1 to 2'
    """
    said = []
    for name in [*was, *(name for name in now if name not in was)]:
        before, after = was.get(name, ("not set", "")), now.get(name, ("not set", ""))
        if before[1] != after[1] and {before[0], after[0]} != {"None", "not set"}:
            same = before[0] == after[0]
            said.append(f"{name} changed ({after[0]})" if same else f"{name} changed from {before[0]} to {after[0]}")
    more = f", and {len(said) - MOST_CHANGES:,} more" if len(said) > MOST_CHANGES else ""
    return ", ".join(said[:MOST_CHANGES]) + more


def _items(value: Any) -> Mapping[str, Any]:
    if isinstance(value, Mapping):
        return value
    fields = (field for field in dataclasses.fields(value) if field.metadata.get("identity", True))
    return {field.name: getattr(value, field.name) for field in fields}


def _shown(name: str, value: Any) -> str:
    if any(word in name for word in SECRET):
        return "not shown"
    if _is_plain(value):
        text = repr(value)
        return text if len(text) <= LONGEST else f"{text[:LONGEST]}..."
    if callable(value) and hasattr(value, "__name__"):
        return f"the function {value.__name__}"
    return f"a {type(value).__name__}"


def _is_plain(value: Any) -> bool:
    if isinstance(value, (list, tuple)):
        return all(_is_plain(item) for item in value[: LONGEST + 1])
    if isinstance(value, Mapping):
        return len(value) <= LONGEST and all(_is_plain(item) for pair in value.items() for item in pair)
    return value is None or isinstance(value, (str, bool, int, float))
