# SPDX-License-Identifier: Apache-2.0
"""Dataset card of the Hugging Face hub: YAML for the hub, and for each split what its receipt says.

Text that a person wrote around these sections stays: a section lies between two marks, and only this part is replaced.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import yaml

from curator_df.errors import ParameterError
from curator_df.memory.sizes import show_count, show_size
from curator_df.receipts.recipe_file import dump

MOST_REASONS = 30
"""Maximum number of reasons in a card."""
SIZES = ((10**3, "n<1K"), (10**4, "1K<n<10K"), (10**5, "10K<n<100K"), (10**6, "100K<n<1M"), (10**7, "1M<n<10M"))
LARGE_SIZES = ((10**8, "10M<n<100M"), (10**9, "100M<n<1B"), (10**10, "1B<n<10B"), (10**11, "10B<n<100B"))
LARGER = ((10**12, "100B<n<1T"),)
LARGEST = "n>1T"
TAG = "curator_df"
_HEAD = re.compile(r"\A---[ \t]*\r?\n(.*?)^---[ \t]*(?:\r?\n|\Z)", re.DOTALL | re.MULTILINE)


@dataclass(frozen=True)
class CardSplit:
    """Split of a dataset, as a card describes it."""

    name: str
    """Name of the split."""
    receipt: Any
    """`Receipt` of the run that wrote it, whose module imports this one when it is saved as a card."""
    patterns: Mapping[str, str]
    """Pattern of its files for each configuration."""


def dataset_card(repo: str, splits: Sequence[CardSplit], *, license: str | None, existing: str | None) -> str:  # noqa: A002
    """Return the text of a card.

    Parameters
    ----------
    repo : str
        Name of the repository.
    splits : sequence of CardSplit
        Splits that are described.
    license : str, optional
        License of the dataset, such as ``odc-by``. By default that of the existing card.
    existing : str, optional
        Existing card. Its text and its other fields are kept.

    Raises
    ------
    ParameterError
        If the fields of the existing card cannot be read.
    """
    fields, body = _parts_of(existing or "")
    is_whole = {each.name for each in splits}.issuperset(_splits_in(fields))
    merged = {**fields, "configs": _configs(fields.get("configs") or [], splits)}
    merged |= {} if license is None else {"license": license}
    merged["tags"] = [*dict.fromkeys([*_listed(fields.get("tags")), TAG])]
    if is_whole:
        merged["size_categories"] = [size_category(sum(each.receipt.rows_written for each in splits))]
    if not body.strip():
        body = f"# {repo.rpartition('/')[2]}\n"
    for each in splits:
        body = _with_section(body, each)
    return f"---\n{dump(merged)}---\n\n{body.strip()}\n"


def size_category(rows: int) -> str:
    """Return the hub's name of a number of rows.

    Examples
    --------
    >>> size_category(999), size_category(1_000), size_category(2 * 10**12)
    ('n<1K', '1K<n<10K', 'n>1T')
    """
    return next((name for most, name in (*SIZES, *LARGE_SIZES, *LARGER) if rows < most), LARGEST)


def _parts_of(card: str) -> tuple[dict[str, Any], str]:
    """Return the fields of a card and its text."""
    found = _HEAD.match(card)
    if found is None:
        return {}, card
    try:
        fields = yaml.safe_load(found[1]) or {}
    except yaml.YAMLError as exc:
        raise ParameterError(_UNREADABLE.format(" ".join(str(exc).split()))) from exc
    if not isinstance(fields, dict):
        raise ParameterError(_UNREADABLE.format("it has no fields"))
    configs = fields.get("configs") or []
    if not isinstance(configs, list) or not all(isinstance(config, dict) for config in configs):
        raise ParameterError(_UNREADABLE.format("configs does not list configurations"))
    return fields, card[found.end() :]


_UNREADABLE = "README.md of the repository begins with YAML that cannot be read: {}. Correct it, or set card=False"


def _listed(value: Any) -> list[Any]:
    return [] if value is None else list(value) if isinstance(value, list) else [value]


def _split_of(files: Any) -> str:
    """Return the split of an entry of ``data_files``; a pattern alone is that of the training split."""
    return str(files.get("split", "train")) if isinstance(files, dict) else "train"


def _splits_in(fields: Mapping[str, Any]) -> list[str]:
    """Return the names of the splits in a card's configurations."""
    return [_split_of(files) for config in fields.get("configs") or [] for files in _listed(config.get("data_files"))]


def _configs(existing: Sequence[Any], splits: Sequence[CardSplit]) -> list[dict[str, Any]]:
    """Return the configurations of a card, with the files of these splits and of others that it has.

    Files of these splits go from the configurations that have them now, and from those of folders that no longer exist.
    """
    ours = {(name, each.name) for each in splits for name in each.patterns}
    of_folders = re.compile("data/(?:.*=.*/)?(" + "|".join(re.escape(each.name) for each in splits) + r")-\*")
    found: dict[str, dict[str, Any]] = {}
    for config in existing:
        name, files = str(config.get("config_name", "default")), _listed(config.get("data_files"))
        kept = [
            entry
            for entry in files
            if (name, _split_of(entry)) not in ours
            and not of_folders.fullmatch(str(entry.get("path") if isinstance(entry, dict) else entry))
        ]
        if kept or not files:
            found[name] = {**config, **({"data_files": kept} if kept else {})}
    for each in splits:
        for name, pattern in each.patterns.items():
            config = found.setdefault(name, {"config_name": name})
            config["data_files"] = [*_listed(config.get("data_files")), {"split": each.name, "path": pattern}]
    return list(found.values())


def _with_section(body: str, split: CardSplit) -> str:
    """Return a text in which the section of a split is replaced, or added at the end."""
    begin, end = f"<!-- {TAG}: {split.name} -->", f"<!-- end of {TAG}: {split.name} -->"
    section = f"{begin}\n{_section(split)}\n{end}"
    before, mark, rest = body.partition(begin)
    if mark and end in rest:
        return f"{before}{section}{rest.partition(end)[2]}"
    return f"{body.rstrip()}\n\n{section}\n"


def _section(split: CardSplit) -> str:
    receipt = split.receipt
    files = f"{show_count(receipt.files, 'file')} ({show_size(receipt.output_bytes)})"
    counts = f"{show_count(receipt.rows_written, 'row')} in {files}, of {show_count(receipt.rows_read, 'row')} read."
    if receipt.rows_quarantined:
        counts += f" {show_count(receipt.rows_quarantined, 'row')} could not be read."
    parts = [f"## {split.name}", counts]
    funnel: list[dict[Any, Any]] = receipt.funnel().to_dict("records")
    if funnel:
        places = len({row["output"] for row in funnel}) > 1
        rows = [
            [
                *([posixpath.basename(row["output"].rstrip("/"))] if places else []),
                row["step"],
                *(f"{row[count]:,}" for count in ("rows_in", "rows_dropped", "rows_out")),
                f"{100 * row['share']:.1f}%",
            ]
            for row in funnel
        ]
        head = [*(["run"] if places else []), "step", "rows in", "rows dropped", "rows out", "share of the first"]
        parts += ["### Funnel", _table(head, rows)]
    reasons: list[dict[Any, Any]] = receipt.reasons().to_dict("records")
    if reasons:
        parts += ["### Dropped rows", _reasons(reasons)]
    parts += ["### Recipe", _recipe(receipt), "### Made with", _versions(receipt)]
    return "\n\n".join(parts)


def _reasons(reasons: Sequence[Mapping[Any, Any]]) -> str:
    shown = reasons[:MOST_REASONS]
    rows = [[row["step"], row["reason"], f"{row['rows']:,}", f"{100 * row['share']:.2f}%"] for row in shown]
    more = len(reasons) - len(shown)
    table = _table(["step", "reason", "rows", "share"], rows)
    return table + (f"\n\nand {show_count(more, 'other reason')}" if more else "")


def _recipe(receipt: Any) -> str:
    if receipt.recipe_text:
        return f"```yaml\n{receipt.recipe_text.rstrip()}\n```"
    steps = ", ".join(f"`{step.name}`" for step in receipt.steps)
    return f"A recipe file cannot hold this run ({receipt.recipe_gap or 'its receipt has none'}). Its steps: {steps}."


def _versions(receipt: Any) -> str:
    when = f" on {receipt.started[:10]}" if receipt.started else ""
    return f"{TAG} {receipt.version or 'of an unknown version'}{when}"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(str(cell).replace('|', chr(92) + '|') for cell in line)} |" for line in lines)
