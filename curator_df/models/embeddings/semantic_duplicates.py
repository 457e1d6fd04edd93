# SPDX-License-Identifier: Apache-2.0
"""Drop or find rows with nearly the same meaning, by their embeddings. The passes over vectors are in `dedup.vectors`."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from numbers import Real
from typing import Any, Literal

import dask.dataframe as dd
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from curator_df.arguments import choose, require_number
from curator_df.core.columns import require_columns
from curator_df.core.planning.lowering import require_addresses
from curator_df.core.ranges.blocks import BlockKernel, map_blocks
from curator_df.core.ranges.price import Price
from curator_df.core.ranges.source import OFFSET_BITS
from curator_df.core.runner.passes import DROP_PEAK_FACTOR
from curator_df.core.tasks.task import OnError, OnOom
from curator_df.dedup.table.id_pass import GroupRows, Matches
from curator_df.dedup.vectors.cluster_rows import eps_word
from curator_df.dedup.vectors.settings import MOST_CLUSTERS, NOT_FINITE, Vectors
from curator_df.dedup.vectors.stages import VectorDrop, VectorFound
from curator_df.errors import ParameterError, SchemaError
from curator_df.exchange.content_keys import ranked_keys
from curator_df.exchange.exchange import Linkage
from curator_df.files.storage import Folder
from curator_df.models.embeddings.k_means import (
    CUML_BYTES,
    LIBRARY_BYTES,
    KMeansBy,
    fit_centroids,
    fit_centroids_on_gpu,
    require_k_means,
)
from curator_df.ops.duplicates.exact import (
    COUNT_FACTOR,
    Best,
    count_reader_bytes,
    counted_meta,
    ranked_by,
    refuse_block,
)
from curator_df.ops.duplicates.group_table import MERGE_BYTES, GroupTable
from curator_df.ops.duplicates.groups import find_groups, found_drops, require_same_parameters, require_same_table
from curator_df.ops.host_only import require_host


def vectors_of(block: Any, *, embedding: str, width: int, dtype: str, ranked_by: str | None) -> Vectors:
    """Return the vectors of a block; null, an empty list, zeros, and a vector with NaN or infinity count as none.

    Numbers of float64 beyond the range of float32 are scaled, because a cosine does not depend on the length of a vector.

    Examples
    --------
    >>> import pandas as pd
    >>> lists = pd.array([[3.0, 4.0], None, [0.0, 0.0]], dtype=pd.ArrowDtype(pa.list_(pa.float32(), 2)))
    >>> vectors_of(pd.DataFrame({"v": lists}), embedding="v", width=2, dtype="float32", ranked_by=None)[:2]
    (array([[3., 4.]], dtype=float32), array([ True, False, False]))
    """
    held: Any = block[embedding].array.__arrow_array__()
    chunks = held.chunks if isinstance(held, pa.ChunkedArray) else [held]
    numbers = np.zeros((len(block), width), dtype=dtype)
    lists, empty = np.zeros(len(block), dtype=np.bool_), np.zeros(len(block), dtype=np.bool_)
    at = 0
    for chunk in chunks:
        part = slice(at, at + len(chunk))
        lists[part] = np.asarray(chunk.is_valid())
        empty[part] = lists[part] & (_lengths(chunk) == 0)
        given = lists[part] & ~empty[part]
        wrong = given & (_lengths(chunk) != width)
        if wrong.any():
            raise _wrong_length(block.index[part], embedding, width, _lengths(chunk), int(wrong.argmax()))
        flat = np.asarray(chunk.flatten().to_numpy(zero_copy_only=False))
        with np.errstate(over="ignore"):  # of a row with an infinity
            numbers[part][given] = _in_range(flat.reshape(-1, width), numbers.dtype)
        at += len(chunk)
    finite, nonzero = np.isfinite(numbers).all(axis=1), (numbers != 0).any(axis=1)
    given = lists & ~empty
    valid = given & finite & nonzero
    unusable = {"null": ~lists, "empty": empty, "zeros": given & ~nonzero, NOT_FINITE: given & ~finite}
    keys = ranked_keys(np.empty((len(block), 0), dtype=np.uint64), block, (), ranked_by)
    return Vectors(numbers[valid], valid, keys.values, keys.missing, unusable)


def _lengths(chunk: Any) -> npt.NDArray[np.int64]:
    """Return the length of each list of a chunk; 0 for null."""
    if pa.types.is_fixed_size_list(chunk.type):
        return np.full(len(chunk), chunk.type.list_size, dtype=np.int64)
    return np.asarray(chunk.value_lengths().fill_null(0), dtype=np.int64)


def _wrong_length(addresses: Any, embedding: str, width: int, lengths: npt.NDArray[np.int64], at: int) -> SchemaError:
    file, offset = divmod(int(addresses[at]), 1 << OFFSET_BITS)
    return SchemaError(
        f"all lists in the column {embedding!r} must have {width:,} numbers, but the row at offset {offset:,} of input file "
        f"{file:,} has a list of {int(lengths[at]):,}, not of {width:,} numbers. Drop such rows with keep_where, or set the "
        "length of the others with dimensions="
    )


def _in_range(rows: npt.NDArray[Any], dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    """Return rows in the range of ``dtype``: rows whose largest number is beyond it are divided by that number."""
    if rows.dtype.itemsize <= dtype.itemsize or not len(rows):
        return rows
    limits: Any = np.finfo(dtype)
    largest = np.abs(rows).max(axis=1)
    outside = np.isfinite(largest) & (largest > 0) & ((largest > limits.max) | (largest < limits.smallest_normal))
    if outside.any():
        rows = rows.copy()
        rows[outside] /= largest[outside, None]
    return rows


def absent(block: Any, *, embedding: str, width: int, dtype: str, ranked_by: str | None) -> npt.NDArray[np.bool_]:  # noqa: ARG001
    """Return which rows have no list."""
    missing: npt.NDArray[np.bool_] = block[embedding].isna().to_numpy(dtype=np.bool_)
    return missing


def vector_type(df: Any, operator: str, embedding: str, dimensions: int | None) -> tuple[int, str]:
    """Return the length of the vectors of a column, and the dtype of their numbers.

    Raises
    ------
    SchemaError
        If the column does not contain lists of numbers.
    ParameterError
        If ``dimensions`` is needed, or differs from the column's.
    """
    kind: Any = getattr(df.dtypes[embedding], "pyarrow_dtype", None)
    lists = kind is not None and (
        pa.types.is_fixed_size_list(kind) or pa.types.is_list(kind) or pa.types.is_large_list(kind)
    )
    if not lists or not pa.types.is_floating(kind.value_type):
        raise SchemaError(
            f"{operator} needs lists of floating-point numbers in the column {embedding!r}, but it has the type "
            f"{df.dtypes[embedding]}. Make such a column with add_embedding, or convert it"
        )
    precision = "float16" if pa.types.is_float16(kind.value_type) else "float32"
    width = kind.list_size if pa.types.is_fixed_size_list(kind) else dimensions
    if width is None:
        raise ParameterError(
            f"{operator}: the type of the column {embedding!r}, {kind}, does not say how many numbers each vector has. Set "
            "that number with dimensions="
        )
    if not isinstance(width, int) or width < 1 or dimensions not in (None, width):
        raise ParameterError(
            f"{operator}: dimensions={dimensions!r} is not the length of the lists in {embedding!r}, which is {width}. "
            "Leave dimensions= out"
        )
    return width, precision


def semantic_matches(found: VectorFound, group: int) -> Matches:
    """Yield the members of a group of input splits, by ``eps``; the kept row of a group has no match."""
    for place, eps in enumerate(found.pending.eps):
        word = eps_word(place)
        for rows in found.member_rows(group, memory_bytes=MERGE_BYTES):
            inside = rows[rows[:, word + 1] > 1]
            if len(inside):
                cosines = inside[:, word + 3].copy().view(np.float64)
                yield GroupRows(inside[:, [0, word, word + 1]], inside[:, word + 2], cosines, eps)


SEMANTIC_TABLE = GroupTable(semantic_matches, measure="cosine", by_eps=True)


SemanticKeep = Literal["hard", "easy", "random", "none"]
REASON = "semantic_duplicate"
DROP = "drop_semantic_duplicates"
FIND = "find_semantic_duplicates"


@dataclass(frozen=True)
class SemanticQuestion:
    """Parameters of the search, which ``groups=`` compares."""

    embedding: str
    """Name of the column of vectors."""
    eps: tuple[float, ...]
    """Ascending."""
    num_clusters: int | None
    """Number of clusters; None to derive it from the rows."""
    keep: SemanticKeep | Best
    """Rule for the kept row of a group."""
    seed: int
    """Seed of all random choices."""
    dimensions: int | None
    """Length of a vector as the user gave it."""
    k_means: KMeansBy = "scikit-learn"
    """Implementation of k-means that finds the clusters."""
    linkage: Linkage = "direct"
    """Whether a row is dropped because of a kept row that it is similar to, or because of any row before it."""

    def to_json(self) -> dict[str, Any]:
        """Return the parameters as JSON values."""
        keep = asdict(self.keep) if isinstance(self.keep, Best) else self.keep
        return {**vars(self), "eps": list(self.eps), "keep": keep}

    @classmethod
    def from_json(cls, said: dict[str, Any]) -> SemanticQuestion:
        """Return the parameters from the result of `to_json`."""
        keep = Best(**said["keep"]) if isinstance(said["keep"], dict) else said["keep"]
        linkage = said.get("linkage", "transitive")  # groups of earlier releases
        return cls(**{**said, "eps": tuple(said["eps"]), "keep": keep, "linkage": linkage})


DEFAULT = SemanticQuestion("embedding", (0.01,), None, "hard", 0, None)


def drop_semantic_duplicates(
    df: dd.DataFrame,
    *,
    embedding: str = "embedding",
    eps: float = 0.01,
    num_clusters: int | None = None,
    keep: SemanticKeep | Best = "hard",
    linkage: Linkage = "direct",
    seed: int = 0,
    dimensions: int | None = None,
    k_means: KMeansBy = "scikit-learn",
    count_into: str | None = None,
    groups: dd.DataFrame | str | os.PathLike[str] | None = None,
) -> dd.DataFrame:
    """Keep one, or none, of all rows whose embeddings have a high cosine similarity, as those of texts with similar meaning do.

    Parameters
    ----------
    df : dask.dataframe.DataFrame
        A table of Dask. A chain on one of the readers is streamed; any other table is first computed into working files.
    embedding : str, default "embedding"
        Column of lists of numbers, as made by `add_embedding`; of any length but zero.
    eps : float, default 0.01
        A row is dropped if its cosine similarity with a kept row earlier in the order is at least ``1 - eps``.
    num_clusters : int, optional
        Number of k-means clusters; only rows of the same cluster are compared. By default one for each 1,000 rows with
        a vector, and the square root of the number of such rows from a million rows on.
    keep : {"hard", "easy", "random", "none"} or `best`
        Order of the rows in a cluster; the first of similar rows is kept. Farthest from the centroid first, nearest
        first, random, or the best value of a column first. Ties (in distance, to one millionth) are in input order, or
        with ``"hard"`` in reverse input order, as in NeMo Curator. ``"none"`` drops every row that is similar to any
        other row of its cluster, whatever ``linkage`` is, which takes three times as many comparisons.
    linkage : {"direct", "transitive"}, default "direct"
        ``"direct"``: a row is dropped only if its cosine similarity with a kept row is at least ``1 - eps``.
        ``"transitive"``: it is also dropped if that row is dropped itself, as by SemDeDup and NeMo Curator.
    seed : int
        Seed of the sample used to find the clusters, of k-means, and of ``keep="random"``.
    dimensions : int, optional
        Length of a vector, if the column's type does not specify it.
    k_means : {"scikit-learn", "cuml"}, default "scikit-learn"
        Implementation that finds the clusters: on CPUs, or on the worker's GPU, which needs the gpu extra and
        ``start_cluster(gpus=)``. The clusters differ, and so may a few of the kept rows; it is therefore an explicit
        choice that does not depend on what a worker has. Not run on a GPU yet.
    count_into : str, optional
        New column (``Int64``): the number of input rows that each kept row stands for, itself included; 1 for a row
        without similar ones. Use it with `repeat_rows`.
    groups : dask.dataframe.DataFrame, str or path, optional
        The table that `find_semantic_duplicates` returned for this input (or its folder). Nothing is computed again.
        ``eps`` must then be one of those it was called with; the other parameters are those it was called with.

    Returns
    -------
    dask.dataframe.DataFrame
        The table with a deferred drop. The writers and `checkpoint` run it; in a cluster of curator_df, so do ``head()``,
        ``len()`` and ``compute()``.

    Raises
    ------
    ColumnError
        If a column is missing.
    SchemaError
        If the column does not contain lists of numbers; when running, if a list differs in length from the others.
    MissingExtraError
        If scikit-learn (or cuML) is not installed.
    ParameterError
        If a parameter is out of range, or ``groups`` were found for another table or with other parameters; when running, if
        there are fewer vectors than ``num_clusters``.
    PendingError
        From ``head()``, ``len()`` or ``compute()`` on the result outside a cluster of curator_df.
    UnsupportedBackendError
        If the blocks are cuDF blocks.

    See Also
    --------
    find_semantic_duplicates, add_embedding, drop_near_duplicates

    Notes
    -----
    Rows: subset, order kept. Columns: same; with ``count_into`` plus the count. Backends: pandas. Peak extra memory:
    1.4 x block; with ``count_into`` 2.0 x block; and scikit-learn (or cuML) in each worker. Computes: no; writing reads
    the input once more; with ``groups=`` a table of Dask or pandas is written to working files.

    The preceding steps run twice: to read the vectors, and to write. After `add_embedding` a `checkpoint` is worth its
    disk space. Rows without a usable vector are kept. The receipt counts them by cause (``null_vectors``, ``empty_vectors``,
    ``zeros_vectors``, and ``not_finite_vectors`` for NaN and infinity), and advises where vectors are not finite. Numbers
    beyond the range of float32 are scaled, which changes no cosine.

    A row is compared with all kept rows before it in its cluster, and its match is the most similar of these. With
    ``linkage="transitive"``, it is compared with dropped rows too: one row of a group is kept, and a dropped row may be
    similar to it only through other rows. Clusters are found from a sample of the vectors, selected
    by content, and cosine similarities are compared as float32, so the result does not depend on blocks, workers or
    memory. With ``k_means="cuml"`` this holds at best for the same GPU and version of cuML.

    References
    ----------
    A. Abbas et al., "SemDeDup", 2023, https://arxiv.org/abs/2303.09540; nemo_curator 0.9.0, modules/semantic_dedup

    Examples
    --------
    >>> import pandas as pd, dask.dataframe as dd, pyarrow as pa
    >>> vectors = pd.array([[1.0, 0.0], [0.0, 1.0]], dtype=pd.ArrowDtype(pa.list_(pa.float32(), 2)))
    >>> docs = dd.from_pandas(pd.DataFrame({"embedding": vectors}), npartitions=1)
    >>> drop_semantic_duplicates(docs, eps=0.05).columns.tolist()  # doctest: +SKIP
    ['embedding']
    """
    asked = _ascending(DROP, (eps,))
    question = SemanticQuestion(embedding, asked, num_clusters, keep, seed, dimensions, k_means, linkage)
    if groups is None:
        return _pending(df, DROP, question, count_into=count_into)
    home, said = found_drops(groups, DROP)
    found = SemanticQuestion.from_json(said)
    if question.eps[0] not in found.eps:
        listed = ", ".join(map(str, found.eps))
        raise ParameterError(
            f"{DROP}: groups= was found with eps={listed}, not with {question.eps[0]}. Use one of these values"
        )
    if replace(question, eps=found.eps) != replace(DEFAULT, eps=found.eps):
        require_same_parameters(DROP, said, replace(question, eps=found.eps).to_json())
    pending = _pending(df, DROP, found, home, found.eps.index(question.eps[0]), count_into)
    require_same_table(pending, DROP, home)
    return pending


def find_semantic_duplicates(
    df: dd.DataFrame,
    *,
    embedding: str = "embedding",
    eps: float | Sequence[float] = 0.01,
    num_clusters: int | None = None,
    keep: SemanticKeep | Best = "hard",
    linkage: Linkage = "direct",
    seed: int = 0,
    dimensions: int | None = None,
    k_means: KMeansBy = "scikit-learn",
    workdir: str | os.PathLike[str] | None = None,
    on_error: OnError = "raise",
    on_oom: OnOom = "retry",
    storage_options: dict[str, Any] | None = None,
) -> dd.DataFrame:
    """Find the groups of rows of which `drop_semantic_duplicates` would keep one, for one or several ``eps`` at once.

    Parameters
    ----------
    df : dask.dataframe.DataFrame
        A table of Dask. A chain on one of the readers is streamed; any other table is first computed into working files.
    embedding, num_clusters, keep, linkage, seed, dimensions, k_means
        As in `drop_semantic_duplicates`.
    eps : float or sequence of float, default 0.01
        As in `drop_semantic_duplicates`: rows match if their cosine similarity is at least ``1 - eps``. For several
        values, similarities are computed only once.
    workdir : str or path, optional
        Folder (or URL) visible to all workers. The result is stored in its own subfolder, complete or interrupted,
        where the same call finds it again (even from another process, with another ``memory=``). Defaults to the
        cluster's ``workdir``.
    on_error : {"raise", "quarantine"}
        What to do when a step fails on a row of ``df``; see `write_parquet`. Quarantined rows are not
        compared; they are in ``_curator/drops/_quarantine/`` of that folder.
    on_oom : {"retry", "raise"}
        What to do when memory runs out in a pass over ``df``; see `write_parquet`. Quarantined rows go to the same folder.
    storage_options : dict, optional
        fsspec options.

    Returns
    -------
    dask.dataframe.DataFrame
        A table on disk, for the ``groups=`` of `drop_semantic_duplicates`. Lazy, for each ``eps`` with a row for each
        row that is in a group: ``eps``; ``address`` (identifies a row of the input), ``file`` and ``offset`` (bytes
        into the decompressed file, or the row number for Parquet); ``group`` (the row ID of the row that is kept),
        ``group_size`` (rows), ``kept``; and, for a dropped row, ``matched_address``, ``matched_file`` and
        ``matched_offset`` of the most similar kept row before it (with ``linkage="transitive"`` of the most similar row
        before it), and ``cosine``. With ``keep="none"``, ``group`` is a
        row of the group, the same for all its rows, and the match is the most similar of all other rows.

    Raises
    ------
    BudgetError
        If the plan does not fit the budget, or ``k_means="cuml"`` finds no GPU; nothing has been started.
    ColumnError
        If a column is missing.
    NoClusterError
        If no cluster is running.
    MissingExtraError
        If scikit-learn (or cuML) is not installed.
    ParameterError
        If a parameter is out of range.
    SchemaError
        If the column does not contain lists of numbers.
    UnsupportedBackendError
        If the blocks are cuDF blocks.

    See Also
    --------
    drop_semantic_duplicates, add_embedding

    Notes
    -----
    Rows: for each ``eps`` one for each member of a group of two or more. Columns: ``eps``; ``address``, ``file`` and
    ``offset``; ``group``, ``group_size`` and ``kept``; ``matched_address``, ``matched_file`` and ``matched_offset``: the
    row that it is most similar to, and ``cosine``. Peak extra memory: 1.5 x block. Computes: yes.

    Pass the result to ``drop_semantic_duplicates(df, eps=..., groups=...)``, which then only writes the rows.
    `read_receipt` shows how many rows each ``eps`` drops.

    Examples
    --------
    >>> docs = cdf.read_jsonl("corpus/")  # doctest: +SKIP
    >>> docs = docs.pipe(cdf.add_embedding, lambda texts: [[len(text), 1.0] for text in texts], dimensions=2)  # doctest: +SKIP
    >>> groups = cdf.find_semantic_duplicates(docs, eps=0.01, workdir="semantic/")  # doctest: +SKIP
    """
    several = _ascending(FIND, _listed(FIND, eps))
    question = SemanticQuestion(embedding, several, num_clusters, keep, seed, dimensions, k_means, linkage)
    pending = _pending(df, FIND, question)
    return find_groups(pending, FIND, question.to_json(), workdir, storage_options, SEMANTIC_TABLE, on_error, on_oom)


def _listed(operator: str, eps: Any) -> tuple[Any, ...]:
    """Return one or several values as given; raise `ParameterError` unless they are a number or a list."""
    if isinstance(eps, Real | str | bytes):
        return (eps,)
    try:
        return tuple(eps)
    except TypeError as exc:
        raise ParameterError(
            f"{operator}: eps={eps!r} must be a number or a list of numbers, not {type(eps).__name__}"
        ) from exc


def _ascending(operator: str, eps: Sequence[float]) -> tuple[float, ...]:
    if not eps:
        raise ParameterError(f"{operator}: eps=[] has no threshold. Use at least one number")
    for one in eps:
        require_number(operator, "eps", one)
        if not 0 <= one < 1:
            raise ParameterError(f"{operator}: eps={one!r} must be at least 0 and less than 1")
    return tuple(sorted({float(one) for one in eps}))


def _pending(
    df: Any,
    operator: str,
    question: SemanticQuestion,
    home: Folder | None = None,
    chosen: int = 0,
    count_into: str | None = None,
) -> Any:
    require_columns(df, operator, question.embedding)
    require_host(df._meta, operator)
    require_addresses(df, operator)
    width, dtype = vector_type(df, operator, question.embedding, question.dimensions)
    require_k_means(operator, question.k_means)
    clusters = question.num_clusters
    if clusters is not None and (not isinstance(clusters, int) or not 1 <= clusters <= MOST_CLUSTERS):
        raise ParameterError(
            f"{operator}: num_clusters={clusters!r} must be a whole number from 1 to {MOST_CLUSTERS:,}"
        )
    keep: Any = question.keep
    ranked: str | None = None
    if isinstance(question.keep, Best):
        ranked = ranked_by(df, operator, question.keep)
        keep = "largest" if question.keep.which == "max" else "smallest"
    else:
        choose(operator, "keep", question.keep, SemanticKeep)
    choose(operator, "linkage", question.linkage, Linkage)
    on_gpu = question.k_means == "cuml"
    library_bytes = CUML_BYTES if on_gpu else LIBRARY_BYTES
    pending = VectorDrop(
        take=vectors_of,
        absent=absent,
        fit=fit_centroids_on_gpu if on_gpu else fit_centroids,
        parameters={"embedding": question.embedding, "width": width, "dtype": dtype, "ranked_by": ranked},
        width=width,
        dtype=dtype,  # type: ignore[arg-type]
        eps=question.eps,
        num_clusters=clusters,
        keep=keep,
        seed=question.seed,
        reason=REASON,
        linkage=question.linkage,
        fits_on_device=on_gpu,
        chosen=chosen,
        home=home,
        columns=tuple(name for name in (question.embedding, ranked) if name is not None),
        held_bytes=0 if home is not None else library_bytes,
        measure="cosine",
        count_into=count_into,
    )
    kernel = BlockKernel(
        DROP,
        refuse_block,
        {"operator": DROP},
        price=Price(
            DROP_PEAK_FACTOR + (0.0 if count_into is None else COUNT_FACTOR),
            held_by_task=count_reader_bytes(count_into),
            is_measured=True,
            held_bytes=pending.held_bytes,
            libraries={question.k_means: library_bytes} if pending.held_bytes else {},
        ),
        computes="k-means by cuML on the worker's GPU" if on_gpu and home is None else "",
        pending=pending,
    )
    return map_blocks(df, kernel, meta=counted_meta(df, operator, count_into, question.keep))
