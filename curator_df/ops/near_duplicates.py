# SPDX-License-Identifier: Apache-2.0
"""Drop rows whose texts are nearly those of another row: MinHash, bands, exact comparison, groups."""

from __future__ import annotations

import dataclasses
import os
from dataclasses import asdict
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa

from curator_df.core.backend import require_backend
from curator_df.core.barrier import Keys
from curator_df.core.blocks import BlockKernel, map_blocks
from curator_df.core.columns import require_text
from curator_df.core.exchange_plan import ROW_BYTES_GUESS
from curator_df.core.near_barrier import NearBarrier
from curator_df.core.program import lower
from curator_df.core.stages import DROP_PEAK_FACTOR
from curator_df.core.storage import Folder
from curator_df.errors import CuratorError, ParameterError
from curator_df.kernels.buffers import text_chunks
from curator_df.kernels.candidates import ANCHORS
from curator_df.kernels.components import component_names
from curator_df.kernels.jaccard import jaccard_similarities
from curator_df.kernels.keep_rows import keep_rows
from curator_df.kernels.minhash import band_hashes, signature_bands
from curator_df.kernels.minhash_scheme import Ngrams, Scheme
from curator_df.ops.duplicates import Best, Survivor, content_keys, ranked_by, refuse_block, survivor_policy
from curator_df.ops.groups import find_groups, found_drops, require_same_table
from curator_df.ops.near_groups import NEAR_TABLE

REASON = "near_duplicate"
DROP = "drop_near_duplicates"
VERIFY = 0.8
"""Least similarity of a pair that is joined, by default."""
MANY_ROWS = 1_000_000_000
"""From about so many rows on 64-bit hashes are chosen."""
MOST_TABLE_BYTES = 64 << 20
"""Of the table of shingles while two texts are compared: texts of up to four million bytes are then read once."""
_LEAST_TABLE_BYTES = 1 << 16


def drop_near_duplicates(
    df: Any,
    *,
    text: str = "text",
    ngrams: Ngrams = "characters",
    ngram_size: int = 24,
    num_bands: int = 20,
    minhashes_per_band: int = 13,
    use_64_bit_hash: bool | None = None,
    seed: int = 42,
    scheme: Scheme | None = None,
    verify: float | None = VERIFY,
    bands_per_iteration: int | None = None,
    keep: Survivor | Best = "first",
    groups: Any = None,
) -> Any:
    """Keep one of all rows whose texts are nearly the same.

    Parameters
    ----------
    df : dask.dataframe.DataFrame
        A chain that begins with `read_jsonl` or `read_parquet`.
    text : str
        The text column.
    ngrams : {"characters", "words"}
        What a shingle is made of. Texts are compared by the sets of their shingles.
    ngram_size : int
        Characters or words of a shingle. A text with fewer is one shingle.
    num_bands : int
        Bands; two texts are candidates if they agree in one.
    minhashes_per_band : int
        Hashes of a band, which must all agree. The chance that a pair of similarity J is found is
        ``1 - (1 - J ** minhashes_per_band) ** num_bands``.
    use_64_bit_hash : bool, optional
        64-bit shingle hashes, which take up to ten times as long. By default where there are a billion rows or more.
    seed : int
        Of the permutations.
    scheme : Scheme, optional
        All of the above as one value, such as ``minhash.FINEWEB``; then none of them may be given besides.
    verify : float or None
        Candidates are compared exactly and joined where the Jaccard similarity is at least this. None joins all candidates,
        which is faster, and drops rows that are less alike.
    bands_per_iteration : int, optional
        Bands whose buckets are compared before their pairs are merged with those known. More need more disk and fewer
        passes; the result is the same. By default as many as the memory for work holds.
    keep : {"first", "last", "longest"} or `best`
        Which row of a group stays, as for `drop_exact_duplicates`.
    groups : dask.dataframe.DataFrame, str or path, optional
        What `find_near_duplicates` returned for this table (or its folder): nothing is computed again, and the other
        parameters are those it was called with.

    Returns
    -------
    dask.dataframe.DataFrame
        The table with a pending drop: `write_parquet` and `write_jsonl` run it; ``.compute()`` and ``.head()`` cannot.

    Raises
    ------
    ColumnError
        If a column is missing.
    ParameterError
        If a parameter is out of range, or ``groups`` were found for another table or with other parameters.
    BarrierError
        From ``.compute()`` or ``.head()`` on the result.

    Notes
    -----
    Rows: subset, order kept. Peak extra memory: 1.4 x block. Computes: no. What comes before it runs three times (twice with
    ``verify=None``): for signatures, to fetch the texts that are compared, and to write. Rows are joined over several steps:
    a row may go that is not itself similar to the one that stays, but to one that is. Rows with the same text are joined
    always, also those without text; otherwise rows without a shingle (nothing, or white space where shingles are words)
    are similar to none.

    In a bucket each text is compared with two others, not with all, so that the work grows with the rows.

    References
    ----------
    A. Broder, "On the resemblance and containment of documents", SEQUENCES 1997.

    Examples
    --------
    >>> import pandas as pd, dask.dataframe as dd
    >>> docs = dd.from_pandas(pd.DataFrame({"text": ["a", "b", "a"]}), npartitions=1)
    >>> drop_near_duplicates(docs, ngrams="words", ngram_size=5).columns.tolist()
    ['text']
    """
    given = {
        "ngrams": ngrams,
        "ngram_size": ngram_size,
        "num_bands": num_bands,
        "minhashes_per_band": minhashes_per_band,
        "use_64_bit_hash": use_64_bit_hash,
        "seed": seed,
    }
    if groups is None:
        chosen = _scheme(df, DROP, given, scheme)
        return _pending(df, DROP, text, chosen, verify, bands_per_iteration, keep)
    home, found = found_drops(groups, DROP)
    asked = _as_json(text, _scheme(df, DROP, given, scheme), verify, keep)
    default = _as_json("text", _scheme(df, DROP, DEFAULTS, None), VERIFY, "first")
    if asked not in (found, default):
        raise ParameterError(f"{DROP}: groups= were found with {found}, not with {asked}")
    keep = Best(**found["keep"]) if isinstance(found["keep"], dict) else found["keep"]
    pending = _pending(df, DROP, found["text"], Scheme(**found["scheme"]), found["verify"], None, keep, home)
    require_same_table(pending, DROP, home)
    return pending


def find_near_duplicates(
    df: Any,
    *,
    text: str = "text",
    ngrams: Ngrams = "characters",
    ngram_size: int = 24,
    num_bands: int = 20,
    minhashes_per_band: int = 13,
    use_64_bit_hash: bool | None = None,
    seed: int = 42,
    scheme: Scheme | None = None,
    verify: float | None = VERIFY,
    bands_per_iteration: int | None = None,
    keep: Survivor | Best = "first",
    workdir: str | os.PathLike[str] | None = None,
    storage_options: dict[str, Any] | None = None,
) -> Any:
    """Find the groups of rows of which `drop_near_duplicates` would keep one, and why each row is in its group.

    Parameters
    ----------
    df : dask.dataframe.DataFrame
        A chain that begins with `read_jsonl` or `read_parquet`.
    text, ngrams, ngram_size, num_bands, minhashes_per_band, use_64_bit_hash, seed, scheme
        As in `drop_near_duplicates`.
    verify, bands_per_iteration, keep
        As in `drop_near_duplicates`.
    workdir : str or path, optional
        Folder (or URL) that all workers see. The result lies in a folder of its own in it, which the same call finds
        again (also in another process, with another ``memory=``), whole or interrupted. By default the cluster's
        ``workdir``.
    storage_options : dict, optional
        For fsspec.

    Returns
    -------
    dask.dataframe.DataFrame
        Lazy, on disk, a row for each row that is in a group: ``address`` (what identifies a row of the input), ``file`` and
        ``offset`` (bytes into the decompressed file, or its row number for Parquet); ``group`` (the address of the row that
        stays), ``group_size`` (rows), ``kept``; ``matched_address``, ``matched_file`` and ``matched_offset`` of the row that
        it is most similar to of those it was compared with, and ``jaccard``, their similarity (null with ``verify=None``).

    Raises
    ------
    BudgetError
        If the plan does not fit the budget; nothing has been started.
    ColumnError
        If a column is missing.
    NoClusterError
        If no cluster is running.
    ParameterError
        If a parameter is out of range.

    Notes
    -----
    Rows: one for each member of a group of two or more. Peak extra memory: 1.5 x block. Computes: yes. Give the result to
    ``drop_near_duplicates(df, groups=...)``, and only the rows are written then; or to `describe_near_duplicates`.
    """
    operator = "find_near_duplicates"
    given = {
        "ngrams": ngrams,
        "ngram_size": ngram_size,
        "num_bands": num_bands,
        "minhashes_per_band": minhashes_per_band,
        "use_64_bit_hash": use_64_bit_hash,
        "seed": seed,
    }
    chosen = _scheme(df, operator, given, scheme)
    pending = _pending(df, operator, text, chosen, verify, bands_per_iteration, keep)
    parameters = _as_json(text, chosen, verify, keep)
    return find_groups(pending, operator, parameters, workdir, storage_options, table=NEAR_TABLE)


DEFAULTS: dict[str, Any] = {
    "ngrams": "characters",
    "ngram_size": 24,
    "num_bands": 20,
    "minhashes_per_band": 13,
    "use_64_bit_hash": None,
    "seed": 42,
}
"""Those of NeMo Curator's FuzzyDuplicatesConfig."""


def _scheme(df: Any, operator: str, given: dict[str, Any], scheme: Scheme | None) -> Scheme:
    if scheme is not None:
        if not isinstance(scheme, Scheme):
            raise ParameterError(f"{operator}: scheme={scheme!r} is not a Scheme; take one of curator_df.minhash")
        if doubled := [name for name, value in given.items() if value != DEFAULTS[name]]:
            raise ParameterError(
                f"{operator}: {', '.join(doubled)} and scheme={scheme.name} cannot both be given; change the scheme with "
                "dataclasses.replace"
            )
        return scheme
    wide = given["use_64_bit_hash"]
    return Scheme(**{**given, "use_64_bit_hash": _has_many_rows(df) if wide is None else wide})


def _has_many_rows(df: Any) -> bool:
    """Tell, from sizes and footers alone, whether there are about a billion rows."""
    try:
        source = lower(df).source
    except CuratorError:
        return False  # a table that cannot be run says so when it is
    rows = source.about_rows()
    return (source.text_bytes / ROW_BYTES_GUESS if rows is None else rows) >= MANY_ROWS


def _pending(
    df: Any,
    operator: str,
    text: str,
    scheme: Scheme,
    verify: float | None,
    bands_per_iteration: int | None,
    keep: Survivor | Best,
    home: Folder | None = None,
) -> Any:
    require_text(df, operator, text)
    require_backend(df._meta, operator, "pandas")
    if verify is not None and not 0.0 < verify <= 1.0:
        raise ParameterError(f"{operator}: verify={verify} is not above 0 and at most 1 (or None)")
    if bands_per_iteration is not None and not 1 <= bands_per_iteration <= scheme.num_bands:
        raise ParameterError(
            f"{operator}: bands_per_iteration={bands_per_iteration} is not from 1 to num_bands={scheme.num_bands}"
        )
    ranked = ranked_by(df, operator, keep)
    columns = (text, ranked) if ranked is not None and ranked in df.columns and ranked != text else (text,)
    barrier = NearBarrier(
        bands=text_bands,
        contents=text_contents,
        checks=text_checks,
        texts=texts_of,
        similarities=text_similarities,
        components=component_names,
        parameters={"text": text, "scheme": dataclasses.replace(scheme, name="", source=""), "ranked_by": ranked},
        num_bands=scheme.num_bands,
        anchors=ANCHORS,
        verify=verify,
        keep=survivor_policy(operator, keep),
        reason=REASON,
        keep_rows=keep_rows,
        bands_per_iteration=bands_per_iteration,
        home=home,
        columns=columns,
    )
    kernel = BlockKernel(
        DROP,
        refuse_block,
        {},
        peak_factor=DROP_PEAK_FACTOR,
        peak_is_measured=True,
        barrier=barrier,
        compiled=("near_duplicates",),
    )
    return map_blocks(df, kernel, meta=df._meta)


def _as_json(text: str, scheme: Scheme, verify: float | None, keep: Survivor | Best) -> dict[str, Any]:
    fields = {name: value for name, value in asdict(scheme).items() if name not in ("name", "source")}
    return {
        "text": text,
        "scheme": fields,
        "verify": verify,
        "keep": asdict(keep) if isinstance(keep, Best) else keep,
    }


def text_bands(
    block: Any,
    *,
    text: str,
    scheme: Scheme,
    ranked_by: str | None,  # noqa: ARG001 - the face of a barrier's function
) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.bool_]]:
    """Return the band hashes of a block's texts, shape (rows, bands), and which have a shingle at all."""
    hashes = band_hashes(block[text], scheme)
    word: Any = np.uint64 if scheme.use_64_bit_hash else np.uint32
    of_none = signature_bands(np.zeros((1, scheme.num_hashes), dtype=word), scheme)
    return hashes, (hashes != of_none).any(axis=1)


def text_contents(block: Any, *, text: str, scheme: Scheme, ranked_by: str | None) -> Keys:
    """Return the hashes of a block's texts, as they are compared, and what survivors are chosen by."""
    return content_keys(block, columns=(text,), normalize=scheme.normalize, ranked_by=ranked_by)


def text_checks(
    block: Any,
    *,
    text: str,
    scheme: Scheme,  # noqa: ARG001 - the face of a barrier's function
    ranked_by: str | None,  # noqa: ARG001
) -> Keys:
    """Return the hashes of a block's texts as they are."""
    return content_keys(block, columns=(text,), normalize=None, ranked_by=None)


def texts_of(
    block: Any,
    rows: npt.NDArray[np.int64],
    *,
    text: str,
    scheme: Scheme,  # noqa: ARG001 - the face of a barrier's function
    ranked_by: str | None,  # noqa: ARG001
) -> pa.LargeStringArray:
    """Return some texts of a block; null counts as empty."""
    chunks = text_chunks(block[text].iloc[rows]).cast(pa.large_string())
    return chunks.combine_chunks().fill_null("")


def text_similarities(
    texts: pa.LargeStringArray,
    pairs: npt.NDArray[np.int64],
    memory_bytes: int,
    *,
    text: str,  # noqa: ARG001 - the face of a barrier's function
    scheme: Scheme,
    ranked_by: str | None,  # noqa: ARG001
) -> npt.NDArray[np.float64]:
    """Return the Jaccard similarities of pairs of places in ``texts``."""
    dtype: Any = pd.StringDtype("pyarrow")
    series = pd.Series(dtype.__from_arrow__(texts))
    table_bytes = max(min(memory_bytes, MOST_TABLE_BYTES), _LEAST_TABLE_BYTES)
    return jaccard_similarities(series, series, pairs, scheme, table_bytes=table_bytes)
