# SPDX-License-Identifier: Apache-2.0
"""Recipe files as a receipt writes them: plain values as YAML, and the file that repeats a receipt's run.

What reads such files is `curator_df.recipes`, whose rules for plain text `_Dumper` keeps.
"""

from __future__ import annotations

import re
from typing import Any

import yaml

from curator_df.errors import RecipeError

_PLAIN = re.compile(r"[0-9]+[kMG]?B|[A-Za-z_./][\w ./*+=()-]*(?<! )")
"""Texts that need no quotes, unless they are one of `AMBIGUOUS`."""
_OF_CLUSTERS = ("memory", "cpus", "gpus", "device_memory", "recycle_after")
"""Arguments of a receipt that are those of `start_cluster`."""
_SIZES = ("memory", "device_memory")
AMBIGUOUS = frozenset({"true", "false", "null", "~", "", "y", "n", "yes", "no", "on", "off", ".nan", ".inf"})
"""Words without quotes, in lower case, that a version of YAML does not read as text."""
_NUMBER_LIKE = re.compile(r"[.+-]*[0-9](?![0-9]*[kMG]?B$)|\.(inf|nan)$", re.IGNORECASE)


class _Dumper(yaml.SafeDumper):  # type: ignore[misc] # PyYAML has no annotations
    """Writes every text in quotes that could be read as anything else."""

    def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002 - recipes have no anchors
        """Write a value that occurs twice twice."""
        return True


def _text(dumper: yaml.SafeDumper, value: str) -> Any:
    is_plain = _PLAIN.fullmatch(value) and value.lower() not in AMBIGUOUS and not _NUMBER_LIKE.match(value)
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=None if is_plain else '"')


_Dumper.add_representer(str, _text)


def dump(value: Any) -> str:
    """Return plain values as YAML.

    Examples
    --------
    >>> print(dump({"languages": ["en", "no"], "eps": 1e-05, "path": "out/", "memory": "1e3"}), end="")
    languages:
    - en
    - "no"
    eps: 1.0e-05
    path: out/
    memory: "1e3"
    """
    return str(yaml.dump(value, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=110))


def size_text(size_bytes: int) -> str:
    """Return bytes exactly, in the largest unit in which they are a whole number.

    Examples
    --------
    >>> size_text(4_000_000_000), size_text(1_234_000), size_text(1_000_001)
    ('4GB', '1234kB', '1000001B')
    """
    for unit, scale in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if size_bytes % scale == 0:
            return f"{size_bytes // scale}{unit}"
    return f"{size_bytes}B"


def recipe_of(receipt: Any) -> str:
    """Return the recipe file of a receipt's run; see `Receipt.recipe`."""
    if receipt.recipe_gap:
        raise RecipeError(f"the run that wrote {receipt.output} cannot be saved as a recipe: {receipt.recipe_gap}")
    if not receipt.recipe_text:
        raise RecipeError(
            f"the run that wrote {receipt.output} cannot be saved as a recipe: it was a run of an earlier version of "
            "curator_df, whose receipts do not store recipes. Run it again with this version, or write the recipe file "
            "yourself"
        )
    arguments = {"memory": receipt.allowed_bytes, **receipt.arguments}
    settings = {name: arguments[name] for name in _OF_CLUSTERS if name in arguments}
    cluster = {
        name: size_text(value) if name in _SIZES and isinstance(value, int) else value
        for name, value in settings.items()
    }
    about = {"reproduces": f"the run that wrote {receipt.output}", "source": f"its receipt; {receipt.made()}"}
    return f"{dump({'about': about})}{receipt.recipe_text}{dump({'cluster': cluster})}"
