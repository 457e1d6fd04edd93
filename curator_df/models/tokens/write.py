# SPDX-License-Identifier: Apache-2.0
"""Write the tokens of texts in the formats that training frameworks read: `write_tokens`."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any, Literal

import dask.dataframe as dd
import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa

from curator_df.arguments import choose
from curator_df.core.backend import require_backend
from curator_df.core.columns import require_text
from curator_df.core.planning.first_steps import Reuse
from curator_df.core.planning.lowering import lower
from curator_df.core.ranges.blocks import BlockKernel, Outcome, map_blocks
from curator_df.core.ranges.journal import OnExisting
from curator_df.core.ranges.price import Price
from curator_df.core.runner.run import run
from curator_df.core.tasks.task import OnError, OnOom
from curator_df.errors import ParameterError
from curator_df.io.output.formats import folder_at, rejects_sink
from curator_df.kernels.text.buffers import text_spans
from curator_df.models.tokens.formats import ArrowFormat, MdsFormat, MegatronFormat, NumpyFormat
from curator_df.models.tokens.merging import list_shards, merge_parts, require_mergeable
from curator_df.models.tokens.packing import MOST_TOKENS, piece_bytes
from curator_df.models.tokens.sink import IDS, SINK_BYTES, TokenSink
from curator_df.models.tokens.tokenizer import (
    CALL_BYTES,
    LIBRARY_BYTES,
    Tokenizer,
    Vocabulary,
    find_tokenizer,
    loaded,
    require_eos,
    vocabulary_of,
)
from curator_df.ops.host_only import HOST_ONLY, require_host
from curator_df.receipts.receipt import Receipt

TokenFormat = Literal["megatron", "numpy", "arrow", "mds"]
OPERATOR = "write_tokens"
ROW_FACTOR = 0.6
"""Memory multiplier of the offset, row ID and EOS token of each row, for short rows."""


def write_tokens(
    df: dd.DataFrame,
    path: str | os.PathLike[str],
    *,
    tokenizer: str | os.PathLike[str],
    format: TokenFormat = "megatron",  # noqa: A002 - the name that other writers use
    text: str = "text",
    add_eos: bool = True,
    eos_token: str | int | None = None,
    special_tokens: bool = False,
    pack: int | None = None,
    split_documents: bool = True,
    pad_id: int | None = None,
    merge: bool = False,
    provenance: bool = True,
    revision: str | None = None,
    rejects: str | os.PathLike[str] | None = None,
    workdir: str | os.PathLike[str] | None = None,
    on_existing: OnExisting = "raise",
    on_error: OnError = "raise",
    on_oom: OnOom = "retry",
    reuse: Reuse = "auto",
    storage_options: dict[str, Any] | None = None,
) -> Receipt:
    """Run a chain and write the tokens of its texts in a format that training frameworks read.

    Parameters
    ----------
    df : dask.dataframe.DataFrame
        A table of Dask. A chain on one of the readers is streamed; any other table is first computed into working files.
    path : str or path
        Folder, or an fsspec URL.
    tokenizer : str or path
        A file ``tokenizer.json``; a folder with one (or with other files, which transformers converts); or the id of a
        model on the Hugging Face hub.
    format : {"megatron", "numpy", "arrow", "mds"}
        ``"megatron"``: pairs of ``.bin`` and ``.idx``, as Megatron's ``preprocess_data.py`` writes them. ``"numpy"``: arrays
        (``.npy``) of uint16 or uint32, for ``np.load(mmap_mode="r")``. ``"arrow"``: Arrow streams with a column ``input_ids``,
        for the package datasets. ``"mds"``: shards with a column ``tokens`` and an ``index.json``, for MosaicML Streaming.
    text : str, default "text"
        The text column.
    add_eos : bool, default True
        Append the EOS token to each document that has tokens, special tokens included.
    eos_token : str or int, optional
        The EOS token, or its ID. By default the one that ``tokenizer_config.json`` next to the tokenizer names.
    special_tokens : bool, default False
        Also write the special tokens that the tokenizer adds to a text, such as ``<s>``, also to an empty one, which then
        is a document of these tokens. Megatron does not.
    pack : int, optional
        Write sequences of exactly this length in tokens, instead of one for each document.
    split_documents : bool, default True
        With ``pack``: True puts all tokens one after the other and cuts them into sequences. False keeps each document in
        one sequence, the first with enough room; only documents longer than ``pack`` are split.
    pad_id : int, optional
        With ``pack``: the token that fills a sequence that is not full. By default the padding token of the tokenizer,
        otherwise the EOS token.
    merge : bool, default False
        Also write the tokens of all files to a single pair (or array) in ``merged/``, for "megatron" and "numpy".
    provenance : bool, default True
        Also write to ``_provenance/`` the file and offset of the row that each range of tokens comes from.
    revision : str, optional
        Commit, tag or branch of a model on the hub.
    rejects : str or path, optional
        Folder for the dropped rows, as Parquet; see `write_parquet`.
    workdir : str or path, optional
        Folder for the temporary files of drops; see `write_parquet`.
    on_existing : {"raise", "resume", "overwrite"}
        What to do if the folder is not empty; see `write_parquet`. A resume requires the same tokenizer.
    on_error : {"raise", "quarantine"}
        What to do when a step fails on a row; see `write_parquet`.
    on_oom : {"retry", "raise"}
        What to do when memory runs out; see `write_parquet`.
    reuse : {"auto", "always", "never"}
        Whether the first steps run once for all passes of a later drop; see `write_parquet`.
    storage_options : dict, optional
        fsspec options.

    Returns
    -------
    Receipt
        A receipt: rows, bytes, seconds and memory of each step, the number of tokens, and why rows were dropped.

    Raises
    ------
    BudgetError
        If the plan does not fit the budget; nothing has been started.
    OutputExistsError
        If the folder holds something and ``on_existing="raise"``.
    ResumeError
        If the folder holds another run, such as one with another tokenizer.
    ParameterError
        If an option does not fit the others or the tokenizer, such as ``add_eos=True`` without an EOS token.
    InputError
        If the tokenizer does not exist.
    MissingExtraError
        If the package tokenizers is not installed.
    NoClusterError
        If no cluster is running.

    See Also
    --------
    add_token_count, shuffle_rows, blend

    Notes
    -----
    Rows: all, in input order over the files' names. Columns: the tokens of the text, and no others. Peak extra memory: 2.6 x
    block; with tokens of 4 bytes 4.6 x block; and 80 MB in each task (with ``split_documents=False`` up to 36 MB more for
    ``pack`` over 100,000), and a tokenizer in each worker. Computes: yes. See ``docs/tokens.md``.

    Each input split makes a file ``part-NNNNNN-000`` (or a pair). Names in sorted order are documents in input order. A text
    that is null is a document without tokens and without EOS token; so is an empty one, unless ``special_tokens`` adds tokens
    to it. With ``pack``, the last sequence of each input split is padded.

    Files do not depend on memory, blocks or workers: a resumed run writes the same bytes.

    Examples
    --------
    >>> receipt = cdf.write_tokens(docs, "tokens/", tokenizer="tokenizer.json", merge=True)  # doctest: +SKIP
    """
    choose(OPERATOR, "format", format, TokenFormat)
    choose(OPERATOR, "on_existing", on_existing, OnExisting)
    choose(OPERATOR, "on_error", on_error, OnError)
    choose(OPERATOR, "on_oom", on_oom, OnOom)
    choose(OPERATOR, "reuse", reuse, Reuse)
    options = TokenOptions(
        tokenizer, text, add_eos, eos_token, special_tokens, pack, split_documents, pad_id, merge, provenance, revision
    )
    tokens, sink = token_output(OPERATOR, df, path, format, options, storage_options)
    receipt = run(
        tokens,
        sink,
        rejects=rejects_sink(df, OPERATOR, rejects, storage_options),
        workdir=None if workdir is None else folder_at(workdir, storage_options),
        on_existing=on_existing,
        on_error=on_error,
        on_oom=on_oom,
        reuse=reuse,
    )
    finish_tokens(sink, merge=merge)
    return receipt


@dataclass(frozen=True)
class TokenOptions:
    """Arguments of `write_tokens` that say what the files of tokens hold."""

    tokenizer: str | os.PathLike[str]
    """Tokenizer as the user gave it."""
    text: str = "text"
    """Text column."""
    add_eos: bool = True
    """Whether the EOS token ends each document."""
    eos_token: str | int | None = None
    """EOS token or its ID; None for that of the tokenizer."""
    special_tokens: bool = False
    """Whether the tokens that the tokenizer adds to a text are written."""
    pack: int | None = None
    """Length of sequences; None for a sequence of each document."""
    split_documents: bool = True
    """Whether a document may be in several sequences."""
    pad_id: int | None = None
    """Token that fills a sequence; None for the padding token of the tokenizer."""
    merge: bool = False
    """Whether all files are also written as one."""
    provenance: bool = True
    """Whether the row of each range of tokens is written."""
    revision: str | None = None
    """Commit, tag or branch of a tokenizer on the hub."""


def token_output(
    operator: str,
    df: Any,
    path: str | os.PathLike[str],
    name: TokenFormat,
    options: TokenOptions,
    storage_options: dict[str, Any] | None,
) -> tuple[Any, TokenSink]:
    """Check the arguments of an output of tokens; return the table of the tokens and its sink."""
    text, pack, eos_token = options.text, options.pack, options.eos_token
    require_text(df, operator, text)
    require_backend(df._meta, operator, "pandas", because=HOST_ONLY[OPERATOR])
    require_mergeable(operator, name, options.merge)
    _require_pack(operator, pack, options.pad_id, split_documents=options.split_documents)
    if isinstance(eos_token, bool) or not isinstance(eos_token, (str, int, type(None))):
        raise ParameterError(f"{operator}: eos_token={eos_token!r} must be a token (str) or its ID (int)")
    found = find_tokenizer(operator, options.tokenizer, options.revision)
    vocabulary = vocabulary_of(operator, found, eos_token)
    eos_id = require_eos(operator, found, vocabulary) if options.add_eos else None
    form = _format(name, vocabulary, pack)
    splits, provenance = bool(options.split_documents), bool(options.provenance)
    sink = TokenSink(
        folder_at(path, storage_options),
        form,
        pack,
        splits,
        0 if pack is None else _pad_id(operator, found, vocabulary, options.pad_id),
        provenance,
        lower(df, spools=True).source.files,
    )
    tokens = _tokenized(
        df,
        found,
        text,
        form.dtype,
        eos_id,
        special_tokens=bool(options.special_tokens),
        keeps_addresses=provenance,
        sink_bytes=SINK_BYTES + piece_bytes(pack, split_documents=splits),
    )
    return tokens, sink


def finish_tokens(sink: TokenSink, *, merge: bool) -> None:
    """Write the files that belong to all input splits of a finished output."""
    if sink.format.name == "mds":
        list_shards(sink)
    if merge:
        merge_parts(sink)


def _require_pack(operator: str, pack: Any, pad_id: Any, *, split_documents: Any) -> None:
    if pack is None:
        for name, value, default in (("pad_id", pad_id, None), ("split_documents", split_documents, True)):
            if value is not default:
                raise ParameterError(
                    f"{operator}: {name}={value!r} applies only to packed sequences. Set pack=, their length in tokens, or "
                    f"leave {name}= out"
                )
        return
    if isinstance(pack, bool) or not isinstance(pack, int) or not 2 <= pack <= MOST_TOKENS:
        raise ParameterError(
            f"{operator}: pack={pack!r} must be the number of tokens of a sequence, from 2 to {MOST_TOKENS:,}, such as 2048"
        )


def _pad_id(operator: str, tokenizer: Tokenizer, vocabulary: Vocabulary, pad_id: int | None) -> int:
    if pad_id is None:
        for known in (vocabulary.pad_id, vocabulary.eos_id):
            if known is not None:
                return known
        raise ParameterError(
            f"{operator}: pack= needs a padding token, but the tokenizer {tokenizer.name!r} names neither a padding token "
            "nor an EOS token. Set pad_id= to the ID of one"
        )
    if isinstance(pad_id, bool) or not isinstance(pad_id, int) or not 0 <= pad_id <= vocabulary.largest_id:
        raise ParameterError(
            f"{operator}: pad_id={pad_id} is not a token of {tokenizer.name!r}. Use an ID from 0 to "
            f"{vocabulary.largest_id:,}"
        )
    return pad_id


def _format(
    name: TokenFormat, vocabulary: Vocabulary, pack: int | None
) -> MegatronFormat | NumpyFormat | ArrowFormat | MdsFormat:
    if name == "megatron":
        return MegatronFormat.of(vocabulary)
    if name == "mds":
        return MdsFormat(pack)
    return NumpyFormat.of(vocabulary, pack) if name == "numpy" else ArrowFormat()


def _tokenized(
    df: Any,
    tokenizer: Tokenizer,
    text: str,
    dtype: str,
    eos_id: int | None,
    *,
    special_tokens: bool,
    keeps_addresses: bool,
    sink_bytes: int = SINK_BYTES,
) -> Any:
    """Return a table of the tokens of each text. With ``keeps_addresses``, earlier steps must have kept the row IDs."""
    parameters = {
        "text": text,
        "tokenizer": tokenizer,
        "dtype": dtype,
        "eos_id": eos_id,
        "special_tokens": special_tokens,
    }
    kernel = BlockKernel(
        OPERATOR,
        tokens_block,
        parameters,
        price=Price(
            np.dtype(dtype).itemsize + ROW_FACTOR,
            fixed_bytes=CALL_BYTES + sink_bytes,
            held_bytes=tokenizer.held_bytes,
            libraries={"tokenizers": LIBRARY_BYTES},
            is_measured=True,
        ),
        uses_addresses=keeps_addresses,
    )
    return map_blocks(df, kernel, meta=pd.DataFrame({IDS: pd.Series(dtype=_list_type(dtype))}, index=df._meta.index))


def tokens_block(
    block: Any, *, text: str, tokenizer: Tokenizer, dtype: str, eos_id: int | None, special_tokens: bool
) -> Outcome:
    """Kernel of `write_tokens`: return the tokens of each text, as lists."""
    require_host(block, OPERATOR)
    texts = block[text]
    lengths = np.zeros(len(texts), dtype=np.int64)
    ids = _Growing(dtype, _text_bytes(texts) + len(texts))
    for encoded in loaded(tokenizer).encoded(texts, special_tokens=special_tokens, eos_id=eos_id):
        lengths[encoded.rows] += encoded.lengths
        ids.append(encoded.ids)
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    lists = pa.LargeListArray.from_arrays(pa.array(offsets), pa.array(ids.taken()))
    array: Any = _list_type(dtype)
    column = pd.Series(array.__from_arrow__(lists), index=block.index, name=IDS, copy=False)
    return Outcome(column.to_frame(), counters={"tokens": int(offsets[-1])})


def _list_type(dtype: str) -> pd.ArrowDtype:
    return pd.ArrowDtype(pa.large_list(pa.from_numpy_dtype(np.dtype(dtype))))


def _text_bytes(texts: pd.Series) -> int:
    return sum(int(span.offsets[-1] - span.offsets[0]) for span in text_spans(texts))


class _Growing:
    """Array that grows at its end. Its memory counts only where it was written, so it begins with a token for each byte."""

    def __init__(self, dtype: str, expected: int) -> None:
        self._values: npt.NDArray[Any] = np.empty(expected, dtype=dtype)
        self._length = 0

    def append(self, values: npt.NDArray[np.uint32]) -> None:
        start, self._length = self._length, self._length + len(values)
        if self._length > len(self._values):  # a normalizer may make more characters than there were
            self._values.resize(self._length * 5 // 4, refcheck=False)
        self._values[start : self._length] = values

    def taken(self) -> npt.NDArray[Any]:
        """Return the values, and give the rest of the memory back."""
        self._values.resize(self._length, refcheck=False)
        return self._values
