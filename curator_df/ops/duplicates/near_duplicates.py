# SPDX-License-Identifier: Apache-2.0
"""Near duplicates by MinHash: drop them (bands, exact comparison, groups), or keep the signatures as a column."""

from __future__ import annotations

import dataclasses
import os
from typing import Any

import dask.dataframe as dd
import numpy as np

from curator_df.arguments import choose, require_integer, require_number
from curator_df.core.backend import require_backend
from curator_df.core.columns import refuse_columns, require_columns, require_text
from curator_df.core.planning.lowering import require_addresses
from curator_df.core.ranges.blocks import BlockKernel, map_blocks
from curator_df.core.ranges.price import Price
from curator_df.core.runner.passes import DROP_PEAK_FACTOR
from curator_df.core.tasks.task import OnError, OnOom
from curator_df.dedup.near.frequent import FREQUENT_BYTES
from curator_df.dedup.near.stages import NearDrop, NearFound
from curator_df.dedup.table.id_pass import GroupRows, Matches
from curator_df.errors import ParameterError
from curator_df.exchange.exchange import MEMBER_WORDS, Linkage
from curator_df.files.storage import Folder
from curator_df.kernels.compiling import kernel_sets
from curator_df.kernels.device.support import COLUMN_FACTOR, hashes_price, signatures_price
from curator_df.kernels.minhash.scheme import Scheme, SchemeName, shingle_unit
from curator_df.kernels.minhash.stored_signatures import pack_signatures, require_stored, stored_dtype
from curator_df.ops.duplicates.exact import (
    COUNT_FACTOR,
    Best,
    Survivor,
    count_reader_bytes,
    counted_meta,
    ranked_by,
    refuse_block,
    survivor_policy,
)
from curator_df.ops.duplicates.group_table import MERGE_BYTES, GroupTable
from curator_df.ops.duplicates.groups import (
    find_groups,
    found_drops,
    named_by,
    require_same_parameters,
    require_same_table,
)
from curator_df.ops.duplicates.index import Index
from curator_df.ops.duplicates.index_runs import IndexUse, index_use, require_alone
from curator_df.ops.duplicates.near_scheme import SIGNATURES, NearQuestion, chosen_scheme, kept_signatures
from curator_df.ops.host_only import COUNTED, FIXED_WIDTH, require_host

ROW_BYTES = 100
"""Bytes of the rows for which the peak factor holds; a block of shorter ones is halved when it does not fit."""
ANCHORS = 2
"""Documents of a bucket with which its others are compared."""
REASON = "near_duplicate"
DROP = "drop_near_duplicates"
JACCARD_THRESHOLD = 0.8
"""Least similarity of a pair that is joined, by default."""


def near_matches(found: NearFound, group: int) -> Matches:
    """Yield the members of a group of ranges, each with the row that it is most similar to of those it was compared with."""
    members = found.member_rows(group, memory_bytes=MERGE_BYTES)
    waiting = np.empty((0, MEMBER_WORDS), dtype=np.uint64)
    for best in found.matches(group, memory_bytes=MERGE_BYTES):
        parts = [waiting]
        held = len(waiting)
        while held < len(best):
            part = next(members)
            parts.append(part)
            held += len(part)
        joined = np.concatenate(parts)
        rows, waiting = joined[: len(best)], joined[len(best) :]
        if (rows[:, 0] != best[:, 0]).any():
            raise ValueError(
                "members and edges of groups are of different rows. This is a defect in curator_df; please report it with "
                "this traceback"
            )
        yield GroupRows(rows, best[:, 1].copy(), best[:, 2].copy().view(np.float64))


def drop_near_duplicates(
    df: dd.DataFrame,
    *,
    text: str | None = "text",
    scheme: Scheme | SchemeName = "default",
    jaccard_threshold: float | None = JACCARD_THRESHOLD,
    bands_per_iteration: int | None = None,
    keep: Survivor | Best = "first",
    linkage: Linkage | None = None,
    ignore_common: float | None = None,
    signatures: str | None = None,
    against: dd.DataFrame | None = None,
    index: Index | None = None,
    count_into: str | None = None,
    groups: dd.DataFrame | str | os.PathLike[str] | None = None,
) -> dd.DataFrame:
    """Keep one, or none, of all rows whose texts are nearly the same.

    Parameters
    ----------
    df : dask.dataframe.DataFrame
        A table of Dask. A chain on one of the readers is streamed; any other table is first computed into working files.
    text : str or None
        The text column. None, with ``signatures``: rows are compared by their signatures alone.
    scheme : Scheme or str, default "default"
        Shingles, hashes and bands: a value of `curator_df.minhash` or its name in lower case, such as ``"fineweb"``, or
        one of your own, ``minhash.FINEWEB.replace(num_bands=20)``. Two texts are candidates if they agree in at least
        one band; the probability of that for a pair with similarity J is
        ``1 - (1 - J ** minhashes_per_band) ** num_bands``. The default is that of NeMo Curator, with 64-bit hashes for
        a billion rows or more.
    jaccard_threshold : float or None
        Candidates are compared exactly, and joined if their Jaccard similarity is at least this. None joins all
        candidates, which is faster, and also drops rows that are less similar.
    bands_per_iteration : int, optional
        Number of bands whose buckets are processed before their pairs are merged with the known pairs. More bands need
        more disk and fewer passes; the result is the same. By default as many as fit into the work memory.
    keep : {"first", "last", "longest", "none"} or `best`
        Which row of a group to keep, as for `drop_exact_duplicates`. ``"none"`` drops every row that was found similar
        to another one, whatever ``linkage`` is.
    linkage : {"direct", "transitive"}, optional
        ``"direct"``: a row is dropped only if its similarity to a row that is kept is at least ``jaccard_threshold``.
        Rows are taken in the order of ``keep``. ``"transitive"``: all rows that are joined through other rows are one
        group, of which one row is kept. By default ``"direct"``, and ``"transitive"`` with ``jaccard_threshold=None``,
        where no similarity is known.
    ignore_common : float, optional
        Share of all documents, such as 0.01. Shingles that occur in more of them (and in more than 10 documents) are
        those of a license, a form or a template. A pair is then joined only if it is as similar without these shingles
        as ``jaccard_threshold`` asks, too. Needs texts, so not with ``signatures``, ``against`` or
        ``jaccard_threshold=None``.
    signatures : str, optional
        Column made by `add_minhash` with the same scheme except the bands: these may differ, as long as they need
        no more hashes. Signatures are then not computed again.
    against : dask.dataframe.DataFrame, optional
        Table with the signatures of other rows, in the column that ``signatures`` names (by default ``"minhash"``), for
        example those of data sets curated earlier. A row that is similar to one of these is dropped, whatever ``keep``
        is; rows of this table are not compared with each other. Similarity is then estimated, from all hashes of both
        signatures.
    index : Index, optional
        What `open_index` returned with this scheme. A row that is similar to one of its documents is dropped, and when
        the run is complete, the rows that it kept are appended. The drop must then be the last step, and ``keep`` must not be
        ``"none"``; ``linkage`` must be ``"direct"``, and texts must be compared.
    count_into : str, optional
        New column (``Int64``): the number of input rows that each kept row stands for, itself included; 1 for a row
        without near duplicates. Use it with `repeat_rows`.
    groups : dask.dataframe.DataFrame, str or path, optional
        The table that `find_near_duplicates` returned for this input (or its folder). Nothing is computed again, and
        the parameters are those it was called with.

    Returns
    -------
    dask.dataframe.DataFrame
        The table with a deferred drop. The writers and `checkpoint` run it; in a cluster of curator_df, so do ``head()``,
        ``len()`` and ``compute()``.

    Raises
    ------
    ColumnError
        If a column is missing.
    ParameterError
        If a parameter is out of range, or ``groups`` were found for another table or with other parameters.
    UnsupportedBackendError
        If the blocks are cuDF blocks, with ``signatures``, ``against`` or ``ignore_common``.
    PendingError
        From ``head()``, ``len()`` or ``compute()`` on the result outside a cluster of curator_df.

    See Also
    --------
    find_near_duplicates, drop_exact_duplicates, describe_near_duplicates

    Notes
    -----
    Rows: subset, order kept. Columns: same; with ``count_into`` plus the count. Backends: pandas; cudf without
    ``signatures``, ``against`` and ``ignore_common``. Peak extra memory: 1.4 x block; with ``count_into`` 2.0 x block; with
    ``ignore_common`` 40 MB for each task. Computes: no; writing reads the input twice more for each drop, once more with
    ``jaccard_threshold=None``; with ``groups=`` or ``against=`` tables of Dask or pandas are written to working files.

    The preceding steps run three times (twice with ``jaccard_threshold=None``): to compute signatures, to fetch the
    texts to compare, and to write. With ``linkage="transitive"``, a dropped row may be similar only to another dropped row,
    not to the one that is kept. Rows with the same text are always joined, including those without text, and with ``normalize=``
    those left empty by it (white space only). Other rows without a shingle (empty, or white space where shingles are
    words) are similar to none.

    With ``ignore_common``, shingles are counted in the first two of these passes, of which the second then reads all rows.
    At most 524,288 shingles are ignored, those of the most documents.

    In a bucket each text is compared with two others and, if there are more, with those that share shingles which these
    two lack; never with all, so the work grows linearly with the number of rows.

    References
    ----------
    A. Broder, "On the resemblance and containment of documents", SEQUENCES 1997.

    Examples
    --------
    >>> import pandas as pd, dask.dataframe as dd
    >>> docs = dd.from_pandas(pd.DataFrame({"text": ["a", "b", "a"]}), npartitions=1)
    >>> drop_near_duplicates(docs, scheme="fineweb").columns.tolist()
    ['text']
    """
    chosen = chosen_scheme(df, DROP, scheme)
    kept = kept_signatures(df, DROP, signatures, against, chosen)
    linked = chosen_linkage(DROP, linkage, jaccard_threshold)
    question = NearQuestion(text, chosen, jaccard_threshold, keep, signatures, kept, linked, ignore_common)
    if index is not None:
        return _indexed(df, question, bands_per_iteration, index, {"groups": groups, "count_into": count_into})
    if groups is None:
        return _pending(df, DROP, question, bands_per_iteration, count_into=count_into)
    home, found = found_drops(groups, DROP)
    default = NearQuestion("text", chosen_scheme(df, DROP, "default"), JACCARD_THRESHOLD, "first", None, None, "direct")
    if question.to_json() != default.to_json():
        require_same_parameters(DROP, found, question.to_json())
    pending = _pending(df, DROP, NearQuestion.from_json(found), None, home, count_into)
    require_same_table(pending, DROP, home)
    return pending


def _indexed(
    df: Any, question: NearQuestion, bands_per_iteration: int | None, index: Index, others: dict[str, Any]
) -> Any:
    """Return a drop that compares with the documents of an index, and appends to it."""
    others |= {name: getattr(question, name) for name in ("against", "signatures", "ignore_common")}
    require_alone(DROP, str(question.keep), others)
    if question.text is None or question.linkage != "direct":
        raise ParameterError(
            f"{DROP}: with index=, a row is dropped because of a similar row that is kept, which needs text= and "
            f"linkage='direct'; found text={question.text!r} and linkage={question.linkage!r}. Change these, or leave out index="
        )
    use = index_use(df, DROP, index, {"scheme": question.scheme, "subset": (question.text,)})
    return _pending(df, DROP, question, bands_per_iteration, index=use)


def find_near_duplicates(
    df: dd.DataFrame,
    *,
    text: str | None = "text",
    id: str | None = None,  # noqa: A002 - what users call it
    scheme: Scheme | SchemeName = "default",
    jaccard_threshold: float | None = JACCARD_THRESHOLD,
    bands_per_iteration: int | None = None,
    keep: Survivor | Best = "first",
    linkage: Linkage | None = None,
    ignore_common: float | None = None,
    signatures: str | None = None,
    against: dd.DataFrame | None = None,
    workdir: str | os.PathLike[str] | None = None,
    on_error: OnError = "raise",
    on_oom: OnOom = "retry",
    storage_options: dict[str, Any] | None = None,
) -> dd.DataFrame:
    """Find the groups of rows of which `drop_near_duplicates` would keep one, and why each row is in its group.

    Parameters
    ----------
    df : dask.dataframe.DataFrame
        A table of Dask. A chain on one of the readers is streamed; any other table is first computed into working files.
    text, scheme, jaccard_threshold, bands_per_iteration, keep, linkage, ignore_common, signatures, against
        As in `drop_near_duplicates`.
    id : str, optional
        Column of text or integers that identifies the rows, to include in the table. This needs one more pass over the
        preceding steps. With ``against``, that table must have the column too.
    workdir : str or path, optional
        Folder (or URL) visible to all workers. The result is stored in its own subfolder, complete or interrupted,
        where the same call finds it again (even from another process, with another ``memory=``). Defaults to the
        cluster's ``workdir``.
    on_error : {"raise", "quarantine"}
        What to do when a step fails on a row of ``df``; see `write_parquet`. Quarantined rows are not
        compared; they are in ``_curator/drops/_quarantine/`` of that folder.
    on_oom : {"retry", "raise"}
        What to do when memory runs out in a pass over ``df``; see `write_parquet`. Quarantined rows go to the same
        place.
    storage_options : dict, optional
        fsspec options.

    Returns
    -------
    dask.dataframe.DataFrame
        A table on disk, for the ``groups=`` of `drop_near_duplicates`. Lazy, with a row for each row that is in a
        group: with ``id=`` first ``id`` and ``matched_id``; ``address`` (identifies a row of the input), ``file`` and
        ``offset`` (bytes into the decompressed file, or the row number for Parquet); ``group`` (the row ID of the row
        that is kept), ``group_size`` (rows), ``kept``; ``matched_address``, ``matched_file`` and ``matched_offset`` of
        the most similar row among those it was compared with, and ``jaccard``, their similarity (null with
        ``jaccard_threshold=None``). With ``keep="none"``, a group consists of all rows that are joined through other
        rows, and ``group`` is the address of its first row.

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
    UnsupportedBackendError
        If the blocks are cuDF blocks, with ``signatures``, ``against`` or ``ignore_common``.

    See Also
    --------
    drop_near_duplicates, describe_near_duplicates, split_rows

    Notes
    -----
    Rows: one for each member of a group of two or more. Columns: with ``id=`` ``id`` and ``matched_id``; ``address``,
    ``file`` and ``offset``; ``group``, ``group_size`` and ``kept``; ``matched_address``, ``matched_file`` and
    ``matched_offset``: the row that it is most similar to, and ``jaccard``. Peak extra memory: 1.5 x block. Computes:
    yes.

    Pass the result to ``drop_near_duplicates(df, groups=...)``, which then only writes the rows, or to
    `describe_near_duplicates`.

    Examples
    --------
    >>> docs = cdf.read_jsonl("corpus/")  # doctest: +SKIP
    >>> groups = cdf.find_near_duplicates(docs, jaccard_threshold=0.9, workdir="near/")  # doctest: +SKIP
    >>> kept = docs.pipe(cdf.drop_near_duplicates, jaccard_threshold=0.9, groups=groups)  # doctest: +SKIP
    """
    operator = "find_near_duplicates"
    chosen = chosen_scheme(df, operator, scheme)
    kept = kept_signatures(df, operator, signatures, against, chosen)
    linked = chosen_linkage(operator, linkage, jaccard_threshold)
    question = NearQuestion(text, chosen, jaccard_threshold, keep, signatures, kept, linked, ignore_common)
    pending = _pending(df, operator, question, bands_per_iteration)
    table = named_by(GroupTable(near_matches, against=kept), df, operator, id, against)
    return find_groups(pending, operator, question.to_json(), workdir, storage_options, table, on_error, on_oom)


def chosen_linkage(operator: str, linkage: Linkage | None, jaccard_threshold: float | None) -> Linkage:
    """Return how rows are linked: by default directly where similarities are computed."""
    if linkage is None:
        return "transitive" if jaccard_threshold is None else "direct"
    choose(operator, "linkage", linkage, Linkage)
    if linkage == "direct" and jaccard_threshold is None:
        raise ParameterError(
            f"{operator}: linkage='direct' needs similarities, and jaccard_threshold=None computes none. Set "
            "jaccard_threshold=, or use linkage='transitive'"
        )
    return linkage


def _pending(
    df: Any,
    operator: str,
    question: NearQuestion,
    bands_per_iteration: int | None,
    home: Folder | None = None,
    count_into: str | None = None,
    index: IndexUse | None = None,
) -> Any:
    text, scheme, signatures = question.text, question.scheme, question.signatures
    jaccard_threshold = question.jaccard_threshold
    _require_columns(df, operator, question)
    _require_backend(df, operator, question)
    require_addresses(df, operator)
    if question.ignore_common is not None:
        _require_counting(df, operator, question, question.ignore_common)
    _require_numbers(operator, jaccard_threshold, bands_per_iteration, scheme)
    ranked = ranked_by(df, operator, question.keep)
    of_keys = [text if signatures is None else signatures, text if ranked == "#length" else ranked]
    pending = NearDrop(
        text=text,
        scheme=dataclasses.replace(scheme, name="", source=""),
        ranked_by=ranked,
        signatures=signatures,
        anchors=ANCHORS,
        verify=jaccard_threshold,
        keep=survivor_policy(operator, question.keep),
        linkage=question.linkage,
        reason=REASON,
        ignore_common=question.ignore_common,
        bands_per_iteration=bands_per_iteration,
        home=home,
        columns=tuple(dict.fromkeys(name for name in of_keys if name is not None)),
        text_columns=tuple(name for name in (text or signatures,) if name is not None),
        against=question.against,
        measure="jaccard",
        count_into=count_into,
        index=index,
    )
    pending = pending if index is None else index.bound(pending, None, "raise")
    laid_factor, signature_bytes = signatures_price(scheme)
    hash_factor, hash_bytes = hashes_price(normalized=False)
    counting = {"counts of shingles": FREQUENT_BYTES} if question.ignore_common is not None and home is None else {}
    kernel = BlockKernel(
        DROP,
        refuse_block,
        {"operator": DROP},
        price=Price(
            DROP_PEAK_FACTOR + (0.0 if count_into is None else COUNT_FACTOR),
            held_by_task={**count_reader_bytes(count_into), **counting},
            device_peak_factor=sum((1.0, hash_factor, laid_factor, COLUMN_FACTOR if ranked is not None else 0.0)),
            device_fixed_bytes=max(signature_bytes, hash_bytes),
            is_measured=True,
        ),
        pending=pending,
        compiled=_kernels(question),
    )
    return map_blocks(df, kernel, meta=counted_meta(df, operator, count_into, question.keep))


def _require_numbers(
    operator: str, jaccard_threshold: float | None, bands_per_iteration: int | None, scheme: Scheme
) -> None:
    if jaccard_threshold is not None:
        require_number(operator, "jaccard_threshold", jaccard_threshold)
    if bands_per_iteration is not None:
        require_integer(operator, "bands_per_iteration", bands_per_iteration)
    if jaccard_threshold is not None and not 0.0 < jaccard_threshold <= 1.0:
        raise ParameterError(
            f"{operator}: jaccard_threshold={jaccard_threshold!r} must be above 0 and at most 1, such as 0.8, or None to "
            "skip the comparison"
        )
    if bands_per_iteration is not None and not 1 <= bands_per_iteration <= scheme.num_bands:
        raise ParameterError(
            f"{operator}: bands_per_iteration={bands_per_iteration} is not from 1 to num_bands={scheme.num_bands}"
        )


def _kernels(question: NearQuestion) -> tuple[str, ...]:
    """Return the kernels of the drop, and those of the table whose signatures are compared."""
    bits, unit = question.scheme.use_64_bit_hash, shingle_unit(question.scheme)
    compares_texts = question.text is not None and question.jaccard_threshold is not None
    needed = kernel_sets.near_duplicates(unit, use_64_bit_hash=bits, compares_texts=compares_texts)
    needed += () if question.ignore_common is None else kernel_sets.frequent_shingles(unit)
    program = None if question.against is None else question.against.program
    # Groups that were found need no comparison any more.
    return needed if program is None else (*needed, *program.compiled)


def _require_backend(df: Any, operator: str, question: NearQuestion) -> None:
    if question.signatures is not None or question.against is not None:
        require_backend(df._meta, f"{operator} with signatures= or against=", "pandas", because=FIXED_WIDTH)


def _require_counting(df: Any, operator: str, question: NearQuestion, share: float) -> None:
    """Raise an error unless shingles of the texts can be counted and compared."""
    require_number(operator, "ignore_common", share)
    if not 0.0 < share < 1.0:
        raise ParameterError(
            f"{operator}: ignore_common={share!r} is not above 0 and below 1. Use the share of all documents above which a "
            "shingle is common, such as 0.01"
        )
    if question.signatures is not None or question.against is not None or question.jaccard_threshold is None:
        raise ParameterError(
            f"{operator}: ignore_common= compares texts without their common shingles, which is not possible with "
            "signatures=, against= or jaccard_threshold=None. Leave them out, or leave out ignore_common="
        )
    require_backend(df._meta, f"{operator} with ignore_common=", "pandas", because=COUNTED)


def _require_columns(df: Any, operator: str, question: NearQuestion) -> None:
    if question.text is not None:
        require_text(df, operator, question.text)
    elif question.signatures is None:
        raise ParameterError(
            f"{operator}: text=None needs signatures=, the column that add_minhash added. Set signatures=, or name the text "
            "column with text="
        )
    elif question.keep == "longest":
        raise ParameterError(
            f"{operator}: keep='longest' needs the text column, but text=None was given. Name the column with text=, or use "
            "another keep="
        )
    if question.signatures is not None:
        require_columns(df, operator, question.signatures)
        require_stored(df.dtypes[question.signatures], question.signatures, question.scheme)


def add_minhash(
    df: dd.DataFrame,
    *,
    text: str = "text",
    scheme: Scheme | SchemeName = "default",
    into: str = SIGNATURES,
) -> dd.DataFrame:
    """Add the MinHash signature of each text as a column, so that texts can be compared later without reading them again.

    Parameters
    ----------
    df : dask.dataframe.DataFrame
        The table.
    text : str
        The text column.
    scheme : Scheme or str, default "default"
        As in `drop_near_duplicates`. A signature has as many hashes as all bands need together; other bands can be
        formed from them.
    into : str
        Name of the new column.

    Returns
    -------
    dask.dataframe.DataFrame
        The table with one more column of fixed-width bytes: 24, plus 4 or 8 for each hash (1,064 by default). The first
        8 bytes record how the signature was made, the next 16 are the text's content hash, and the rest are the hashes,
        all little-endian. A text without a shingle has zeros; null counts as empty.

    Raises
    ------
    ColumnError
        If the text column is missing, or the new column already exists.
    ParameterError
        If a parameter is out of range.

    See Also
    --------
    drop_near_duplicates, find_near_duplicates

    Notes
    -----
    Rows: same. Columns: plus ``minhash``, a signature with a header: fixed-width bytes. Backends: pandas. Peak extra
    memory: 11.6 x block with 260 hashes of 32 bits for rows of 100 bytes (the signatures, and 1 x block). Computes: no.

    Write it with `write_parquet` (JSON has no bytes), with the text or only with an id. Then
    ``drop_near_duplicates(df, signatures="minhash")`` reads it instead of computing signatures again, with another
    threshold or other bands; and
    ``drop_near_duplicates(new, against=read_parquet("signatures/"))`` drops the rows of a new table that are similar to
    one whose signature was stored.

    Examples
    --------
    >>> import pandas as pd, dask.dataframe as dd
    >>> docs = dd.from_pandas(pd.DataFrame({"text": ["to be or not to be", None]}), npartitions=1)
    >>> docs.pipe(add_minhash).compute()["minhash"].map(len).tolist()
    [1064, 1064]
    """
    chosen = chosen_scheme(df, "add_minhash", scheme)
    require_text(df, "add_minhash", text)
    require_host(df._meta, "add_minhash")
    refuse_columns(df, "add_minhash", into)
    dtype = stored_dtype(chosen)
    kernel = BlockKernel(
        "add_minhash",
        add_minhash_block,
        {"text": text, "scheme": chosen, "into": into},
        price=Price(round(1.0 + dtype.pyarrow_dtype.byte_width / ROW_BYTES, 1), is_measured=True),
        compiled=kernel_sets.signatures(shingle_unit(chosen), use_64_bit_hash=chosen.use_64_bit_hash),
    )
    return map_blocks(df, kernel, meta=add_minhash_block(df._meta, text=text, scheme=chosen, into=into))


def add_minhash_block(block: Any, *, text: str, scheme: Scheme, into: str) -> Any:
    """Kernel of `add_minhash`."""
    require_host(block, "add_minhash")
    return block.assign(**{into: pack_signatures(block[text], scheme)})
