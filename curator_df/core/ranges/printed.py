# SPDX-License-Identifier: Apache-2.0
"""Parameters as a journal keeps them: printed for people, with a digest that tells whether they changed.

Only plain values are printed. Of others, which may be large or hold what is secret, the type and the digest are kept.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from curator_df.core.fingerprint import fingerprint

LONGEST = 60
"""Characters of a value that are kept."""
SECRET = ("password", "secret", "api_key")
Printed = dict[str, tuple[str, str]]
"""By name the value as it is shown, and its digest."""


def printed(value: Any, *, without: tuple[str, ...] = ()) -> Printed:
    """Return the items of a mapping, or the fields of a dataclass that identify it; those of ``parameters`` and formats too.

    Examples
    --------
    >>> {name: shown for name, (shown, _) in printed({"seed": 1, "where": max, "columns": ["a"]}).items()}
    {'seed': '1', 'where': 'the function max', 'columns': "['a']"}
    """
    found: Printed = {}
    for name, item in _items(value).items():
        if name in without:
            continue
        if name in ("parameters", "format"):
            found |= printed(item)
        else:
            found[name] = (_shown(name, item), fingerprint(item)[:16])
    return found


def changes(was: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """Return in words which parameters are not the same; empty if none is known to differ."""
    said = []
    for name in [*was, *(name for name in now if name not in was)]:
        before, after = was.get(name, ("not there", "")), now.get(name, ("not there", ""))
        if before[1] != after[1]:
            same = before[0] == after[0]
            said.append(f"{name} ({after[0]}) changed" if same else f"{name} was {before[0]} and is {after[0]}")
    return ", ".join(said)


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
    return value is None or isinstance(value, (str, bool, int, float))
