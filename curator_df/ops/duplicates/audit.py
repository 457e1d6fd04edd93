# SPDX-License-Identifier: Apache-2.0
"""A sample of the rows that a drop of duplicates removes, each with the row because of which it goes: `audit_duplicates`."""

from __future__ import annotations

import difflib
import html
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

import dask.dataframe as dd
import numpy as np
import numpy.typing as npt
import pandas as pd

from curator_df.arguments import require_integer
from curator_df.core.columns import require_columns
from curator_df.core.planning.lowering import lower
from curator_df.core.ranges.blocks import BlockKernel, map_blocks
from curator_df.core.ranges.price import Price
from curator_df.core.ranges.source import OFFSET_BITS
from curator_df.errors import ParameterError
from curator_df.files.storage import shown_path
from curator_df.kernels.minhash.jaccard import jaccard_similarities
from curator_df.kernels.minhash.scheme import Scheme
from curator_df.kernels.rows.content_hash import row_hashes
from curator_df.kernels.rows.row_sample import random_numbers
from curator_df.ops.duplicates.duplicate_report import chosen_eps, table_of
from curator_df.ops.duplicates.group_report import require_counts
from curator_df.ops.duplicates.groups import found_drops, kind_of, require_same_input
from curator_df.ops.rows.row_lookup import rows_at
from curator_df.receipts.saved_documents import save_text
from curator_df.suggestions import suggests_names

OPERATOR = "audit_duplicates"
PAIRS_AT_ONCE = 50
"""Number of pairs whose whole rows are in memory together."""
Z_SCORE = 1.96
"""Quantile of the normal distribution for an interval of 95%."""
ALL = "all"
"""Name of the line of a precision for all sources."""
NO_SOURCE = "(none)"
"""Name of the line of a precision for rows whose source is null."""
PLACES = ["address", "group", "matched_address"]
COLUMNS = (
    *("source", "similarity", "recomputed", "is_duplicate", "file", "offset", "text"),
    *("other_file", "other_offset", "other_text", "diff"),
)
"""Columns of the table, in order."""
PAGE_STYLE = """
.audit { font: 15px/1.5 system-ui, sans-serif; max-width: 1400px; margin: 0 auto; color: #1b1b1f }
.audit h1 { font-size: 22px } .audit h2 { font-size: 15px; margin: 0 0 6px }
.audit table { border-collapse: collapse; margin: 8px 0 20px } .audit td, .audit th { padding: 3px 12px 3px 0; text-align: left }
.audit .pair { border-top: 1px solid #c9c9d2; padding: 14px 0 }
.audit .sides { display: grid; grid-template-columns: 1fr 1fr; gap: 18px }
.audit .side { background: #f7f7f9; padding: 10px 12px; white-space: pre-wrap; overflow-wrap: anywhere; max-height: 420px;
  overflow: auto }
.audit .place { color: #5c5c66; font-size: 12px; overflow-wrap: anywhere }
.audit .diff { margin-top: 8px; overflow-wrap: anywhere }
.audit del { background: #ffd9d6; text-decoration: none } .audit ins { background: #d3f2d6; text-decoration: none }
.audit .skipped { color: #5c5c66; font-style: italic } .audit .not { color: #a4260f; font-weight: 600 }
@media (max-width: 800px) { .audit .sides { grid-template-columns: 1fr } }
"""
"""Style of the page that `DuplicateAudit.save` writes."""
WORD_TAGS = {
    "same": "{}",
    "left": "<del>{}</del>",
    "right": "<ins>{}</ins>",
    "skipped": "<span class='skipped'>[{}]</span>",
}
MOST_WORDS = 400
"""Number of words of each text that are compared, from the first difference on: the time grows with their product."""
CONTEXT_WORDS = 30
"""Number of equal words that are shown before and after a difference."""


class Piece(NamedTuple):
    """Consecutive words of one or of both texts."""

    kind: Literal["same", "left", "right", "skipped"]
    """Text that has the words: both, only the left one, only the right one; "skipped" for words that are not shown."""
    words: str
    """The words; for "skipped", a note of how many they are."""


Diffs = tuple[tuple[Piece, ...], ...]


@suggests_names
@dataclass(frozen=True, repr=False)
class DuplicateAudit:
    """The result of `audit_duplicates`. It displays itself in terminals and notebooks; `save` writes a page to read.

    See Also
    --------
    audit_duplicates, describe_near_duplicates
    """

    table: pd.DataFrame
    """One row for each pair. Index ``pair``, from 0. ``source`` (with ``by``); ``similarity``, as found, with the matched row;
    ``recomputed``, with the other row; ``is_duplicate``, whether that is at least the threshold (null if unknown); ``file``,
    ``offset`` and ``text`` of the dropped row; ``other_file``, ``other_offset`` and ``other_text`` of the row that is kept for it
    (with ``keep="none"``, of the matched row); ``diff``, the words of the dropped text alone in ``[- -]`` and those of the other
    one in ``{+ +}``. The texts are truncated; similarities and diffs are of the whole texts."""
    deletions: int
    """Number of dropped rows, from which the pairs are a random sample."""
    threshold: float | None
    """Minimum similarity of a pair; None with ``jaccard_threshold=None``, where only a reader says what is a duplicate."""
    measure: str
    """Similarity that ``recomputed`` contains: ``"jaccard"``, ``"cosine"``, or ``"equal"`` (1 or 0)."""
    diffs: Diffs
    """Word diff of the whole texts of each pair: pieces with a kind ("same", "left", "right" or "skipped") and their words."""

    def precision(self, verdicts: Mapping[int, bool] | None = None) -> pd.DataFrame:
        """Estimate the share of deletions that are duplicates, by source.

        Parameters
        ----------
        verdicts : mapping of int to bool, optional
            Verdicts of a reader, by pair: True if the dropped row is a duplicate of the other one. They replace the verdict by
            similarity; all other pairs keep theirs.

        Returns
        -------
        pandas.DataFrame
            Index ``source``: ``"all"``, and with ``by=`` each of its values (``"(none)"`` for null; a value that is ``"all"`` or
            ``"(none)"`` itself is followed by ``(source)``). Columns: ``pairs`` (with a verdict), ``duplicates``, ``precision``,
            and ``low`` and ``high``, the ends of its Wilson interval of 95%.

        Raises
        ------
        ParameterError
            If a verdict is for a pair that does not exist, or is neither True nor False.
        """
        known = self.table["is_duplicate"].copy()
        for pair, verdict in (verdicts or {}).items():
            if pair not in known.index:
                raise ParameterError(
                    f"precision: verdicts= has the pair {pair!r}, but pairs are numbered from 0 to {len(known) - 1:,}. Use "
                    "only these numbers"
                )
            if not isinstance(verdict, (bool, np.bool_)):
                raise ParameterError(
                    f"precision: verdicts= has {verdict!r} for the pair {pair!r}. Use True if its row is a duplicate, or False; "
                    "leave out pairs without a verdict"
                )
            known[pair] = bool(verdict)
        known = known[known.notna()].astype(bool)
        lines = {ALL: known}
        if "source" in self.table:
            names = _source_names(self.table["source"][known.index].astype("string"))
            lines |= {str(name): known[names == name] for name in sorted(names.unique())}
        figures = [
            (len(some), int(some.sum()), *wilson_interval(int(some.sum()), len(some))) for some in lines.values()
        ]
        columns = ["pairs", "duplicates", "precision", "low", "high"]
        return pd.DataFrame(figures, columns=columns, index=pd.Index(lines, name="source"))

    def save(self, path: str | os.PathLike[str], verdicts: Mapping[int, bool] | None = None) -> None:
        """Write the pairs as one self-contained HTML page, each with its two texts side by side.

        Parameters
        ----------
        path : str or path
            Name of the file, such as ``"audit.html"``; an existing file is replaced.
        verdicts : mapping of int to bool, optional
            Verdicts of a reader, as for `precision`.

        Raises
        ------
        ParameterError
            If the name does not end in ``.html``.
        """
        if Path(path).suffix.lower() not in (".html", ".htm"):
            raise ParameterError(f"save: {os.fspath(path)!r} must end in .html")
        page = _page(self.table, self.diffs, self.precision(verdicts), self.lines(), self.measure)
        save_text(path, page)

    def lines(self) -> list[tuple[str, str]]:
        """Return the audit as (name, value) lines."""
        found = [("pairs", f"{len(self.table):,}, a random sample of {self.deletions:,} deletions")]
        least = "no threshold" if self.threshold is None else f"at least {self.threshold:g}"
        found.append(("duplicate", f"{self.measure} of {least}" if self.measure != "equal" else "equal values"))
        unknown = int(self.table["is_duplicate"].isna().sum())
        return [*found, ("unknown", f"{unknown:,} pairs")] if unknown else found

    def __str__(self) -> str:
        head = "\n".join(f"{name:<10} {value}" for name, value in self.lines())
        return f"{head}\n\n{self.precision().to_string(float_format='{:.3f}'.format)}"

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return _page(self.table.head(5), self.diffs, self.precision(), self.lines(), self.measure, is_whole=False)


def audit_duplicates(
    groups: dd.DataFrame | str | os.PathLike[str],
    docs: dd.DataFrame,
    *,
    pairs: int = 1_000,
    eps: float | None = None,
    text: str = "text",
    by: str | None = None,
    max_chars: int = 2_000,
    seed: int = 0,
) -> DuplicateAudit:
    """Show a random sample of deletions, each with the row that is kept for it, and estimate how many are duplicates.

    Parameters
    ----------
    groups : dask.dataframe.DataFrame, str or path
        The table that `find_exact_duplicates`, `find_near_duplicates` or `find_semantic_duplicates` returned, or its
        folder.
    docs : dask.dataframe.DataFrame
        The table in which the groups were found.
    pairs : int, default 1000
        Number of deletions to look at.
    eps : float, optional
        Semantic duplicates: value to look at, one of those that the groups were found with. Required if there are
        several.
    text : str
        Column to show and compare word by word.
    by : str, optional
        Column with the source of a row, for an estimate by source.
    max_chars : int
        Number of characters to keep of each text, at least 1.
    seed : int
        Seed of the sample. The same pairs are chosen whatever the partitions.

    Returns
    -------
    DuplicateAudit
        The pairs as a table, with ``precision()`` and ``save("audit.html")``.

    Raises
    ------
    ColumnError
        If ``docs`` lack a column.
    InputError
        If ``groups`` were not written by a ``find_`` operator, or a file of them is not as it was written.
    ParameterError
        If the groups were found in a table other than ``docs``, ``eps`` is missing or was not searched, or a number is
        out of range.
    ExpressionError
        If a step of ``docs`` needs more than one block, or the range of its block.

    See Also
    --------
    find_near_duplicates, describe_near_duplicates, drop_near_duplicates

    Notes
    -----
    Rows: none. Peak extra memory: 8 MB, the whole rows of 50 pairs, and ``max_chars`` characters of the texts of all pairs
    in this process. Computes: yes, from the table of groups on disk and the parts of the input that contain the
    pairs, up to 8 MB for each row.

    A dropped row is compared with the row of its group that is kept, and not with the one it matched. With
    ``linkage="transitive"`` the two can differ, and pairs below the threshold are what the groups have swallowed. With
    ``keep="none"`` no row is kept, and a row is compared with the one it matched.
    Similarities are computed again from the whole texts (for semantic duplicates from the vectors; for exact
    duplicates, values are compared). Rows that match another table (``against=``) have no other text, so their verdict
    is unknown.

    Examples
    --------
    >>> docs = cdf.read_jsonl("corpus/")  # doctest: +SKIP
    >>> groups = cdf.find_near_duplicates(docs, workdir="near/")  # doctest: +SKIP
    >>> audit = cdf.audit_duplicates(groups, docs, pairs=200, by="site")  # doctest: +SKIP
    >>> audit.save("audit.html")  # doctest: +SKIP
    >>> rates = audit.precision()  # doctest: +SKIP
    """
    require_counts(OPERATOR, pairs=pairs, max_chars=max_chars)
    require_integer(OPERATOR, "seed", seed)
    drops, parameters = found_drops(groups, OPERATOR, any_kind=True, needs_table=True)
    require_columns(docs, OPERATOR, text, *([] if by is None else [by]))
    require_same_input(docs, OPERATOR, drops)
    compared = _compared_by(parameters, eps)
    table = table_of(groups)
    if compared.eps is not None:
        table = table[table["eps"] == compared.eps]
    dropped = table[~table["kept"]]
    chosen = _sample(dropped, compared.measure_column, pairs, seed)
    shown, diffs = _with_texts(docs, chosen, compared, text, by, max_chars)
    return DuplicateAudit(shown, len(dropped), compared.threshold, compared.measure, diffs)


def wilson_interval(hits: int, trials: int) -> tuple[float, float, float]:
    """Return a share and the ends of its Wilson interval of 95%; NaN without trials.

    References
    ----------
    E. B. Wilson, "Probable inference, the law of succession, and statistical inference", JASA 22, 1927.

    Examples
    --------
    >>> [round(value, 4) for value in wilson_interval(9, 10)]
    [0.9, 0.5958, 0.9821]
    """
    if not trials:
        return (float("nan"),) * 3
    share, square = hits / trials, Z_SCORE**2
    centre = (share + square / (2 * trials)) / (1 + square / trials)
    half = Z_SCORE * (share * (1 - share) / trials + square / (4 * trials**2)) ** 0.5 / (1 + square / trials)
    return share, min(max(centre - half, 0.0), share), max(min(centre + half, 1.0), share)  # but for rounding


@dataclass(frozen=True)
class _Compared:
    """Method by which the pairs of a table of groups are compared again."""

    measure: str
    threshold: float | None
    parameters: Mapping[str, Any]
    eps: float | None = None

    @property
    def measure_column(self) -> str:
        return "cosine" if self.measure == "cosine" else "jaccard"

    def similarities(self, left: pd.DataFrame, right: pd.DataFrame) -> npt.NDArray[np.float64]:
        """Return the similarity of each row with the row at the same place of another block; their indexes are equal."""
        if self.measure == "cosine":
            return _cosines(left[self.parameters["embedding"]], right[self.parameters["embedding"]])
        if self.measure == "equal":
            hashes = (
                row_hashes(rows, self.parameters["subset"], normalize=self.parameters["normalize"])
                for rows in (left, right)
            )
            one, two = hashes
            return np.asarray((one == two).all(axis=1), dtype=np.float64)
        text, places = self.parameters["text"], np.arange(len(left))
        scheme = Scheme(**self.parameters["scheme"])
        return jaccard_similarities(left[text], right[text], np.stack([places, places], axis=1), scheme)


def _compared_by(parameters: Mapping[str, Any], eps: float | None) -> _Compared:
    kind = kind_of(parameters)
    if kind == "semantic_duplicates":
        chosen = chosen_eps(OPERATOR, eps, parameters["eps"])
        return _Compared("cosine", 1 - chosen, parameters, chosen)
    if eps is not None:
        raise ParameterError(f"{OPERATOR}: eps={eps!r} is for groups that find_semantic_duplicates found. Leave it out")
    if kind == "exact_duplicates":
        return _Compared("equal", 1.0, parameters)
    if parameters["text"] is None:
        raise ParameterError(
            f"{OPERATOR}: groups= were found from stored signatures alone, so there is no text to compare. Find the groups "
            "again with text="
        )
    return _Compared("jaccard", parameters["jaccard_threshold"], parameters)


def _sample(dropped: Any, measure: str, pairs: int, seed: int) -> pd.DataFrame:
    """Return the dropped rows with the smallest random numbers, in order of address."""
    columns = dropped[[*PLACES, measure]]
    kernel = BlockKernel(OPERATOR, smallest_of_block, {"pairs": pairs, "seed": seed}, price=Price(2.0))
    some = map_blocks(columns, kernel, meta=columns._meta.assign(drawn=0.0)).nsmallest(pairs, "drawn").compute()
    some = some.reset_index(drop=True)  # the index of a table on disk has a name of its own
    chosen: pd.DataFrame = some.sort_values("address", ignore_index=True).rename(columns={measure: "similarity"})
    return chosen


def smallest_of_block(block: Any, *, pairs: int, seed: int) -> Any:
    """Return the rows of a block with the smallest random numbers, which depend on their address alone."""
    numbers = random_numbers(block["address"].to_numpy(dtype=np.int64).view(np.uint64).copy(), seed)
    return block.assign(drawn=numbers).nsmallest(pairs, "drawn")


def _with_texts(
    docs: Any, chosen: pd.DataFrame, compared: _Compared, text: str, by: str | None, max_chars: int
) -> tuple[pd.DataFrame, Diffs]:
    """Return the pairs with their texts, looked up in batches, and their word diffs."""
    program = lower(docs, spools=True)
    files = [shown_path(path) for path in program.source.files]
    own, groups, matched = (chosen[name].to_numpy(dtype=np.int64) for name in PLACES)
    others = matched if compared.parameters["keep"] == "none" else groups
    diffs: list[tuple[Piece, ...]] = []
    parts = []
    for start in range(0, max(len(chosen), 1), PAIRS_AT_ONCE):
        part = slice(start, start + PAIRS_AT_ONCE)
        rows = rows_at(program, np.concatenate([own[part], others[part]]), OPERATOR)
        parts.append(_compared_rows(rows, own[part], others[part], compared, by))
        left, right = (rows[text].astype("string[pyarrow]").reindex(each[part]) for each in (own, others))
        diffs += [tuple(word_diff(*pair)) for pair in zip(left.fillna(""), right.fillna(""), strict=True)]
        parts[-1]["text"] = left.str.slice(0, max_chars).array
        parts[-1]["other_text"] = right.str.slice(0, max_chars).array
    shown = pd.concat(parts, ignore_index=True)
    shown["similarity"] = chosen["similarity"].to_numpy(dtype=np.float64, na_value=np.nan)
    shown["diff"] = pd.array([as_marked_text(pieces) for pieces in diffs], dtype="string[pyarrow]")
    for prefix, addresses in (("", own), ("other_", others)):
        paths = [files[number] if number < len(files) else None for number in (addresses >> OFFSET_BITS).tolist()]
        shown[f"{prefix}file"] = pd.array(paths, dtype="string[pyarrow]")
        shown[f"{prefix}offset"] = addresses & ((1 << OFFSET_BITS) - 1)
    named = [name for name in COLUMNS if name in shown]
    return shown[named].rename_axis("pair"), tuple(diffs)


def _compared_rows(
    rows: pd.DataFrame,
    own: npt.NDArray[np.int64],
    others: npt.NDArray[np.int64],
    compared: _Compared,
    by: str | None,
) -> pd.DataFrame:
    """Return similarities and verdicts of pairs of rows; unknown where a row was not found."""
    found = np.isin(own, rows.index) & np.isin(others, rows.index)
    similarities = np.full(len(own), np.nan)
    if found.any():
        one, two = (rows.loc[each[found]].reset_index(drop=True) for each in (own, others))
        similarities[found] = compared.similarities(one, two)
    verdicts: Any = pd.array([None] * len(own), dtype="boolean")
    if compared.threshold is not None:
        # Cosines were compared as float32.
        least = compared.threshold - (1e-6 if compared.measure == "cosine" else 0.0)
        verdicts = pd.arrays.BooleanArray(similarities >= least, ~found)
    columns = {} if by is None else {"source": rows[by].reindex(own).reset_index(drop=True)}
    return pd.DataFrame({**columns, "recomputed": similarities, "is_duplicate": verdicts})


def _source_names(sources: pd.Series) -> pd.Series:
    """Return the names of sources in a precision: no source has the name of the line of all rows, or of those without one."""
    taken = {ALL, NO_SOURCE}
    names = {}
    for source in sorted(sources.dropna().unique()):
        name = source
        while name in taken:
            name = f"{name} (source)"
        names[source] = name
        taken.add(name)
    return sources.map(names).astype("string").fillna(NO_SOURCE)


def _cosines(left: pd.Series, right: pd.Series) -> npt.NDArray[np.float64]:
    pairs = zip(left, right, strict=True)
    units = [[np.asarray(each, dtype=np.float64) / np.linalg.norm(each) for each in pair] for pair in pairs]
    return np.array([float(one @ two) for one, two in units])


def _page(
    table: pd.DataFrame,
    diffs: Sequence[Sequence[Piece]],
    precision: pd.DataFrame,
    lines: Sequence[tuple[str, str]],
    measure: str,
    *,
    is_whole: bool = True,
) -> str:
    """Return the HTML page of an audit, without scripts, fonts or other files, or only its content for a notebook."""
    head = "".join(f"<tr><th>{html.escape(name)}</th><td>{html.escape(value)}</td></tr>" for name, value in lines)
    rates = precision.to_html(float_format="{:.3f}".format, border=0)
    numbered: Any = table.iterrows()
    body = "".join(_pair(number, dict(row), diffs[number], measure) for number, row in numbered)
    said = (
        "Left: the dropped row. Right: the row that is kept for it, or, if none is kept, the row that it matched. "
        "Below: words of the left text only, and of the right only."
    )
    marks = said.replace("words of the left text only", "<del>words of the left text only</del>").replace(
        "of the right only", "<ins>of the right only</ins>"
    )
    content = (
        f"<style>{PAGE_STYLE}</style><div class='audit'><h1>Deleted duplicates</h1><table>{head}</table>{rates}<p>{marks}</p>"
        f"{body}</div>"
    )
    if not is_whole:
        return content
    return (
        "<!doctype html><html lang='en'><head><meta charset='utf-8'><title>Deleted duplicates - curator_df</title></head>"
        f"<body>{content}</body></html>\n"
    )


def _pair(number: Any, row: dict[Any, Any], diff: Sequence[Piece], measure: str) -> str:
    sides = "".join(
        f"<div><div class='place'>{_place(row, prefix)}</div><div class='side'>{_escaped(row[f'{prefix}text'])}</div></div>"
        for prefix in ("", "other_")
    )
    verdict = "unknown" if pd.isna(row["is_duplicate"]) else "duplicate" if row["is_duplicate"] else "not a duplicate"
    shown = f"<span class='not'>{verdict}</span>" if verdict.startswith("not") else verdict
    source = f", {_escaped(row['source'])}" if "source" in row else ""
    value = "unknown" if pd.isna(row["recomputed"]) else f"{row['recomputed']:.3f}"
    return (
        f"<section class='pair' id='pair-{number}'><h2>Pair {number}{source}: {measure} {value}, {shown}</h2>"
        f"<div class='sides'>{sides}</div><div class='diff'>{' '.join(map(_tagged, diff))}</div></section>"
    )


def _tagged(piece: Piece) -> str:
    return WORD_TAGS[piece.kind].format(html.escape(piece.words))


def _place(row: dict[Any, Any], prefix: str) -> str:
    file = row[f"{prefix}file"]
    return "another table" if pd.isna(file) else f"{_escaped(file)}, offset {row[f'{prefix}offset']:,}"


def _escaped(value: Any) -> str:
    return "<em>null</em>" if pd.isna(value) else html.escape(str(value))


def word_diff(left: str, right: str, *, most_words: int = MOST_WORDS, context: int = CONTEXT_WORDS) -> list[Piece]:
    """Compare two texts word by word.

    Equal beginnings and ends are found in one pass; only the words between are aligned, up to ``most_words`` of each text.

    Parameters
    ----------
    left, right : str
        Texts of any length. White space only separates words.
    most_words : int
        Number of words to align.
    context : int
        Number of equal words to show around a difference.

    Examples
    --------
    >>> [tuple(piece) for piece in word_diff("a b c d", "a x c d")]
    [('same', 'a'), ('left', 'b'), ('right', 'x'), ('same', 'c d')]
    """
    one, two = left.split(), right.split()
    begin = 0
    while begin < min(len(one), len(two)) and one[begin] == two[begin]:
        begin += 1
    end = 0
    while end < min(len(one), len(two)) - begin and one[-1 - end] == two[-1 - end]:
        end += 1
    middle_one, middle_two = one[begin : len(one) - end], two[begin : len(two) - end]
    pieces = _shortened(one[:begin], context, has_before=False, has_after=bool(middle_one or middle_two))
    matcher = difflib.SequenceMatcher(None, middle_one[:most_words], middle_two[:most_words], autojunk=False)
    codes = matcher.get_opcodes()
    for number, (tag, i1, i2, j1, j2) in enumerate(codes):
        if tag == "equal":
            has_before, has_after = number > 0 or begin > 0, number < len(codes) - 1 or end > 0
            pieces += _shortened(middle_one[i1:i2], context, has_before=has_before, has_after=has_after)
            continue
        pieces += [Piece("left", " ".join(middle_one[i1:i2]))] if i2 > i1 else []
        pieces += [Piece("right", " ".join(middle_two[j1:j2]))] if j2 > j1 else []
    left_over = [max(len(middle) - most_words, 0) for middle in (middle_one, middle_two)]
    if any(left_over):
        pieces.append(Piece("skipped", f"{left_over[0]:,} and {left_over[1]:,} more words that differ"))
    return pieces + _shortened(
        one[len(one) - end :], context, has_before=bool(middle_one or middle_two), has_after=False
    )


def _shortened(words: list[str], context: int, *, has_before: bool, has_after: bool) -> list[Piece]:
    """Return equal words, without those that are far from a difference."""
    first, last = context if has_before else 0, context if has_after else 0
    if not (has_before or has_after):
        first = context
    if len(words) <= first + last:
        return [Piece("same", " ".join(words))] if words else []
    pieces = [Piece("same", " ".join(words[:first]))] if first else []
    pieces.append(Piece("skipped", f"{len(words) - first - last:,} equal words"))
    return pieces + ([Piece("same", " ".join(words[len(words) - last :]))] if last else [])


def as_marked_text(pieces: Sequence[Piece]) -> str:
    """Return a comparison as text: words of the left text in ``[- -]``, of the right one in ``{+ +}``.

    Examples
    --------
    >>> as_marked_text(word_diff("a b c", "a x c"))
    'a [-b-] {+x+} c'
    """
    marks = {"same": "{}", "left": "[-{}-]", "right": "{{+{}+}}", "skipped": "[... {} ...]"}
    return " ".join(marks[piece.kind].format(piece.words) for piece in pieces)
