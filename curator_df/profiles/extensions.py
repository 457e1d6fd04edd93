# SPDX-License-Identifier: Apache-2.0
"""Limits for source code by file extension, from a user's table: NeMo Curator's ``PerExtensionFilter``.

The table is a CSV file with the columns of BigCode's ``visual_inspection.csv``, which the data of StarCoder was made with; NeMo
calls it ``code_meta.csv``. This module has no limits of its own.
"""

from __future__ import annotations

import csv
import math
import os

from curator_df.errors import InputError, ParameterError
from curator_df.ops.filters.rules import Keep, Profile, Rule

COLUMNS = ("language", "extension", "Include", "Long_line_threshold", "Alphanum_threshold", "Alpha filter")
"""Columns that a row of the table must have."""
MEAN_LINE_LENGTH = 100
"""Maximum mean line length of files whose longest line is limited: nemo_curator 0.9.0, filters/code.py, PerExtensionFilter."""
_FILTER = "nemo_curator 0.9.0, filters/code.py, PerExtensionFilter"


def nemo_per_extension(table: str | os.PathLike[str], *, language: str, extension: str) -> Profile:
    r"""Return the limits in a table for the files of a language with an extension.

    Parameters
    ----------
    table : path
        A CSV file with the columns ``language``, ``extension``, ``Include``, ``Long_line_threshold``,
        ``Alphanum_threshold`` and ``Alpha filter``, such as BigCode's ``visual_inspection.csv``; others are ignored.
    language : str
        Language of the files, in any case: ``"C#"`` and ``"F#"`` are ``c-sharp`` and ``f-sharp`` in the table, and
        spaces are hyphens there.
    extension : str
        Extension of the files without the dot, case-sensitive; ``""`` for none.

    Returns
    -------
    Profile
        Limits on the longest line (code points), the mean line length (at most 100 if the longest line is limited), and
        the minimum shares of alphanumeric characters and of letters. A cell that is not a number, or is 0, sets no
        limit, as in NeMo.

    Raises
    ------
    InputError
        If the file does not exist, or a column is missing.
    ParameterError
        If the table does not have the language or the extension, excludes it (``Include`` is not 1), or sets no limit for it.

    References
    ----------
    .. [1] R. Li et al. 2023, StarCoder: may the source be with you!, arXiv 2305.06161, 3.1
    .. [2] nemo_curator 0.9.0, filters/code.py, PerExtensionFilter

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> folder = tempfile.TemporaryDirectory()
    >>> table = Path(folder.name) / "code_meta.csv"
    >>> lines = ",".join(COLUMNS), "python,py,1,1000,0.25,"
    >>> _ = table.write_text("\n".join(lines))
    >>> [str(rule) for rule in nemo_per_extension(table, language="Python", extension="py").rules]
    ['longest_line_length <= 1000', 'mean_line_length <= 100', 'alphanumeric_ratio >= 0.25']
    >>> folder.cleanup()
    """
    name = {"C#": "c-sharp", "F#": "f-sharp"}.get(language, language.lower().replace(" ", "-"))
    row = _row_of(os.fspath(table), name, extension)
    what = f"{name} files {f'.{extension}' if extension else 'without extension'}"
    if row["Include"] != "1":
        raise ParameterError(
            f"nemo_per_extension: {os.fspath(table)!r} excludes {what}. Drop these files, for example with keep_where"
        )
    rules = _rules(row, f"{_FILTER}: {os.path.basename(table)}, {name}, {extension!r}")
    if not rules:
        raise ParameterError(
            f"nemo_per_extension: {os.fspath(table)!r} sets no limit for {what}. Keep all of these files"
        )
    return Profile(f"nemo_per_extension {name} {extension}".strip(), "0.9.0", f"{_FILTER}; {os.fspath(table)}", rules)


def _row_of(table: str, language: str, extension: str) -> dict[str, str]:
    """Return the last row of a language and an extension, as in NeMo."""
    found, extensions = None, set()
    try:
        with open(table, encoding="utf-8", newline="") as file:
            reader = csv.DictReader(file)
            missing = [column for column in COLUMNS if column not in (reader.fieldnames or ())]
            if missing:
                raise InputError(f"nemo_per_extension: {table!r} has no column {', '.join(map(repr, missing))}")
            for row in reader:
                if row["language"] == language:
                    extensions.add(row["extension"])
                    found = row if row["extension"] == extension else found
    except OSError as exc:
        raise InputError(f"nemo_per_extension: {table!r} cannot be read: {exc}") from exc
    if found is None:
        known = ", ".join(map(repr, sorted(extensions))) if extensions else "none"
        raise ParameterError(
            f"nemo_per_extension: {table!r} has no extension {extension!r} for {language!r}. It has for this language: {known}"
        )
    return found


def _rules(row: dict[str, str], source: str) -> tuple[Rule, ...]:
    longest = _limit(row["Long_line_threshold"], int)
    limits: tuple[tuple[str, Keep, float, str], ...] = (
        ("longest_line_length", "<=", longest, "per_extension_line_max"),
        ("mean_line_length", "<=", MEAN_LINE_LENGTH if longest else 0, "per_extension_line_mean"),
        ("alphanumeric_ratio", ">=", _limit(row["Alphanum_threshold"], float), "per_extension_alphanum"),
        ("letter_ratio", ">=", _limit(row["Alpha filter"], float), "per_extension_alpha"),
    )
    return tuple(
        Rule(metric, keep, threshold, reason, source) for metric, keep, threshold, reason in limits if threshold
    )


def _limit(cell: str | None, number: type[int | float]) -> float:
    """Return the number in a cell, or 0: the table also has notes, such as "remove"."""
    try:
        value = number(cell or "")
    except ValueError:
        return 0
    return 0 if math.isnan(value) else value
