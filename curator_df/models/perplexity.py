# SPDX-License-Identifier: Apache-2.0
"""The perplexity of texts under n-gram models of KenLM, and buckets of it as in CCNet: `add_perplexity`."""

from __future__ import annotations

import os
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import dask.dataframe as dd
import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa

from curator_df.arguments import absolute, choose, did_you_mean_path, path_of, require_number
from curator_df.core.columns import refuse_columns, require_columns, require_text
from curator_df.core.ranges.blocks import BlockKernel, Outcome, map_blocks
from curator_df.core.ranges.out_of_memory import is_out_of_memory
from curator_df.core.ranges.price import Price
from curator_df.errors import CorruptFileError, InputError, ParameterError
from curator_df.extras import require_package
from curator_df.files.storage import reading_errors
from curator_df.kernels.text.buffers import repeated_texts, text_chunks
from curator_df.memory.process_cache import cached
from curator_df.models.files import AGAIN, digest_of
from curator_df.ops.host_only import require_host

Normalization = Literal["ccnet", "none"]
BUCKETS = ("head", "middle", "tail")
"""Names of the buckets, from the lowest perplexity on."""
PEAK_FACTOR = 0.6
"""Memory multiplier: a number and its mask of 9 bytes for each row, and the name of a bucket; for rows of 100 bytes."""
PIECE_BYTES = 1 << 14
"""Bytes of a text that are passed to the tokenizer and the model together."""
CALL_BYTES = 8_000_000
"""Bytes of a call: a piece of a text, its tokens as Python strings, and work space; at most 1 MB was measured."""
LIBRARY_BYTES = 10_000_000
_BINARY = b"mmap lm http://kheafield.com/code"
_ARPA = b"\\data\\"
_ARPA_BYTES = 40
"""Bytes of an n-gram in the hash tables that KenLM makes from a text file: 21 were measured, and a reserve for reading it."""
_TOKENIZER_FACTOR = 4
"""Memory of a loaded SentencePiece model, as a multiple of its file."""
_PUNCTUATION = {
    **dict.fromkeys("„”“«»」「《》", '"'),
    **dict(zip("，。、∶：？！（）；–．～´’…", [*",.,::?!();-", ". ", "~", "'", "'", "..."], strict=True)),
    "—": " - ",
    "━": "-",
    "〈": "<",
    "〉": ">",
    "【": "[",
    "】": "]",
    "％": "%",
    "►": "-",
}
"""Punctuation that CCNet replaces."""


@dataclass(frozen=True)
class NgramModel:
    """A model of KenLM, and the SentencePiece model that splits its texts into tokens."""

    path: str = field(metadata={"identity": False})
    """File of the model, the same for all workers."""
    tokenizer: str = field(metadata={"identity": False})
    """File of the SentencePiece model; empty for words."""
    digest: str
    """Digest (BLAKE2b) of the files."""
    size_bytes: int = field(metadata={"identity": False})
    """Size of the model's file."""
    held_bytes: int = field(metadata={"identity": False})
    """Bytes that a process holds once, without pages of a file that the system reads when they are needed."""


@dataclass(frozen=True)
class PerplexitySettings:
    """Settings of `add_perplexity` that change its result."""

    models: tuple[tuple[Any, NgramModel], ...]
    """Model for each value of the column ``by``; a single one, for the value None, without such a column."""
    bounds: tuple[tuple[float, float], ...]
    """Bounds of the buckets for each model; empty if no buckets are wanted."""
    by: str | None
    """Column that selects the model."""
    normalization: Normalization
    """Normalization of a text before it is split."""


def add_perplexity(
    df: dd.DataFrame,
    model: str | os.PathLike[str] | Mapping[str, str | os.PathLike[str]],
    *,
    tokenizer: str | os.PathLike[str] | Mapping[str, str | os.PathLike[str]] | None = None,
    by: str | None = None,
    normalization: Normalization = "ccnet",
    buckets: Sequence[float] | Mapping[str, Sequence[float]] | None = None,
    text: str = "text",
    into: str = "perplexity",
) -> dd.DataFrame:
    """Add the perplexity of each text under an n-gram model of KenLM: the lower, the more it is like the model's text.

    Parameters
    ----------
    df : dask.dataframe.DataFrame
        The table.
    model : str or path, or mapping of str to str or path
        A file of KenLM: a binary one, such as CCNet's ``en.arpa.bin``, or a text file (ARPA). With ``by``, a file for each value
        of that column, such as ``{"en": "en.arpa.bin", "de": "de.arpa.bin"}``.
    tokenizer : str or path, or mapping of str to str or path, optional
        The SentencePiece model that the n-gram model was trained with, such as CCNet's ``en.sp.model``; with ``by``, one for each
        value. By default tokens are words, split at white space.
    by : str, optional
        Column that selects the model of a row, such as ``"language"``. Rows with another value have no perplexity.
    normalization : {"ccnet", "none"}, default "ccnet"
        ``"ccnet"``: lower case, no accents, 0 for each digit, plain punctuation, no control characters (line feeds are removed,
        too), as the text of CCNet's models. ``"none"``: unchanged.
    buckets : sequence of two floats, or mapping of str to such a sequence, optional
        Also add a column ``perplexity_bucket``: ``"head"`` below the first number, ``"middle"`` below the second, else
        ``"tail"``. With ``by`` a mapping gives the numbers of each value. CCNet takes the 30th and the 60th percentile of a
        language, which ``docs.perplexity.quantile([0.3, 0.6])`` returns.
    text : str, default "text"
        The text column.
    into : str, default "perplexity"
        Name of the column; that of the buckets has the suffix ``_bucket``.

    Returns
    -------
    dask.dataframe.DataFrame
        The same rows with a column ``Float64`` and, if requested, one of text; null where the text is null or has no token, and
        where ``by`` has no model.

    Raises
    ------
    MissingExtraError
        If kenlm or sentencepiece is not installed.
    ColumnError
        If a column is missing, or a new one already exists.
    InputError
        If a file does not exist, or is not a model of its kind.
    CorruptFileError
        When running, if KenLM or SentencePiece cannot read a file.
    ParameterError
        If a mapping is given without ``by`` or the other way round, mappings have different keys, or ``buckets`` are not two
        ascending numbers.
    UnsupportedBackendError
        If the blocks are cuDF blocks.

    See Also
    --------
    add_quality_tier, keep_where, write_by

    Notes
    -----
    Rows: same. Columns: plus ``perplexity``; with ``buckets`` also ``perplexity_bucket``. Backends: pandas. Peak extra memory:
    0.6 x block, 8 MB in each task, and a model in each worker. Computes: no; it reads the files once for their digest.

    The perplexity is 10 to the power of minus the mean of the logarithms (base 10) of all tokens and of the end of the text, as
    in CCNet [1]_, which rounds it to one decimal. The whole text is one sentence. Texts of more than 16,384 bytes pass through
    the tokenizer in pieces that end at spaces (between any two characters where there is none); the context of the model goes on
    from piece to piece.

    The pages of a binary file are mapped: the system reads them when they are needed, shares them between workers and takes them
    back when memory is short, so the plan does not count them. The run is fast where the machine has as much free memory as the
    file has bytes. A text file is loaded into each worker, and counted. The receipt counts ``rows_without_perplexity``.

    References
    ----------
    .. [1] Wenzek et al., CCNet, 2020, https://arxiv.org/abs/1911.00359; ``cc_net/perplexity.py`` and ``text_normalizer.py`` in
       https://github.com/facebookresearch/cc_net
    .. [2] https://github.com/kpu/kenlm

    Examples
    --------
    >>> docs.pipe(cdf.add_perplexity, "en.arpa.bin", tokenizer="en.sp.model", buckets=(300, 600))  # doctest: +SKIP
    """
    operator = "add_perplexity"
    require_text(df, operator, text)
    require_host(df._meta, operator)
    choose(operator, "normalization", normalization, Normalization)
    bucket = None if buckets is None else f"{into}_bucket"
    refuse_columns(df, operator, into, *([bucket] if bucket else []))
    require_package(operator, "kenlm", "perplexity")
    if tokenizer is not None:
        require_package(operator, "sentencepiece", "perplexity")
    if by is not None:
        require_columns(df, operator, by)
    files = _by_value(operator, "model", model, by)
    splits = {} if tokenizer is None else _by_value(operator, "tokenizer", tokenizer, by)
    limits = {} if buckets is None else _by_value(operator, "buckets", buckets, by)
    for name, given in (("tokenizer", splits), ("buckets", limits)):
        if given and set(given) != set(files):
            raise ParameterError(
                f"{operator}: {name}= must have the same keys as model=, which are {list(files)}; it has {list(given)}"
            )
    models = tuple((value, find_ngram_model(operator, path, splits.get(value))) for value, path in files.items())
    settings = PerplexitySettings(
        models, tuple(_two_bounds(operator, limits[value]) for value in files) if limits else (), by, normalization
    )
    kernel = BlockKernel(
        operator,
        add_perplexity_block,
        {"text": text, "settings": settings, "into": into, "bucket": bucket},
        price=Price(
            PEAK_FACTOR,
            fixed_bytes=CALL_BYTES,
            held_bytes=LIBRARY_BYTES + sum(found.held_bytes for _, found in models),
            libraries={"kenlm": LIBRARY_BYTES},
            is_measured=True,
        ),
    )
    new = {into: pd.Series(dtype="Float64"), **({bucket: pd.Series(dtype=pd.StringDtype("pyarrow"))} if bucket else {})}
    return map_blocks(df, kernel, meta=df._meta.assign(**new))


def _by_value(operator: str, parameter: str, given: Any, by: str | None) -> dict[Any, Any]:
    """Return a parameter by value of the column ``by``, or under the key None if ``by`` is not given."""
    if by is None and isinstance(given, Mapping):
        raise ParameterError(
            f"{operator}: {parameter}= is a mapping, so by= must name the column whose values are its keys, such as by='language'"
        )
    if by is not None and (not isinstance(given, Mapping) or not given):
        raise ParameterError(
            f"{operator}: with by={by!r}, {parameter}={given!r} must be a dict with an entry for each value of that "
            "column, such as 'en'"
        )
    return dict(given) if by is not None else {None: given}


def _two_bounds(operator: str, given: Any) -> tuple[float, float]:
    if isinstance(given, str) or not isinstance(given, Sequence) or len(given) != 2:
        raise ParameterError(
            f"{operator}: buckets={given!r} must be two perplexities in ascending order, such as (300, 1000). Texts below "
            "the first are the head (most like the texts of the language model), and texts from the second on are the tail"
        )
    for bound in given:
        require_number(operator, "buckets", bound)
    if not 0 < given[0] <= given[1]:
        raise ParameterError(f"{operator}: buckets={tuple(given)} must be two numbers above 0 in ascending order")
    return float(given[0]), float(given[1])


def find_ngram_model(operator: str, path: Any, tokenizer: Any = None) -> NgramModel:
    """Find a model and its tokenizer without loading them.

    Raises
    ------
    InputError
        If a file does not exist, or is not a model of its kind.
    """
    file, held_bytes = _file_of(operator, "model", path), 0
    with reading_errors(str(file)), file.open("rb") as content:
        head = content.read(1 << 16)
    if not head.startswith(_BINARY):
        if not head.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(_ARPA):
            raise InputError(
                f"{operator}: {str(file)!r} is not a model of KenLM. Use a binary file that build_binary wrote, or an ARPA file "
                r"that begins with \data\ (uncompressed)"
            )
        held_bytes = _ARPA_BYTES * _ngrams(head)
    files = [file]
    if tokenizer is not None:
        files.append(_file_of(operator, "tokenizer", tokenizer))
        with reading_errors(str(files[1])), files[1].open("rb") as content:
            if content.read(1) != b"\n":  # the first piece of its vocabulary
                raise InputError(
                    f"{operator}: {str(files[1])!r} is not a SentencePiece model. Use the file ending in .model that the n-gram "
                    "model was trained with"
                )
        held_bytes += _TOKENIZER_FACTOR * files[1].stat().st_size
    with reading_errors(str(file)):
        digest = digest_of(files)
    return NgramModel(
        str(file), str(files[1]) if tokenizer is not None else "", digest, file.stat().st_size, held_bytes
    )


def _file_of(operator: str, parameter: str, given: Any) -> Path:
    file = Path(absolute(path_of(operator, parameter, given)))
    with reading_errors(str(file)):
        if not file.is_file():
            raise InputError(
                f"{operator}: there is no file {str(file)!r}, which {parameter}= names{did_you_mean_path(str(file))}"
            )
    return file


def _ngrams(head: bytes) -> int:
    r"""Return the number of n-grams that the beginning of an ARPA file names.

    Examples
    --------
    >>> _ngrams(b"\\data\\\nngram 1=10\nngram 2= 20\n\n\\1-grams:\nngram 3=4")
    30
    """
    total = 0
    for line in head.decode("utf-8", "replace").split("\\1-grams:")[0].splitlines():
        name, _, count = line.partition("=")
        if name.startswith("ngram ") and count.strip().isdigit():
            total += int(count)
    return total


class LoadedNgramModel:
    """A model in this process. Several threads use it independently."""

    def __init__(self, found: NgramModel) -> None:
        import kenlm

        config = kenlm.Config()
        config.load_method, config.show_progress = kenlm.LoadMethod.LAZY, False
        config.arpa_complain = kenlm.ARPALoadComplain.NONE
        self._kenlm = kenlm
        self._model = _loaded(found.path, lambda: kenlm.Model(found.path, config))
        self._pieces = None
        if found.tokenizer:
            import sentencepiece

            self._pieces = _loaded(
                found.tokenizer, lambda: sentencepiece.SentencePieceProcessor(model_file=found.tokenizer)
            )

    def perplexity(self, content: memoryview, *, is_normalized: bool) -> float:
        """Return the perplexity of a text in UTF-8; NaN if it has no token."""
        total, tokens, states = 0.0, 0, [self._kenlm.State(), self._kenlm.State()]
        self._model.BeginSentenceWrite(states[0])
        pieces = list(_cuts(content)) if len(content) > PIECE_BYTES else [(0, len(content))]
        for start, stop in pieces:
            piece = str(content[start:stop], "utf-8", "replace")
            words = self._tokens(normalized(piece) if is_normalized else piece)
            if len(pieces) == 1:
                line = " ".join(words)
                return 10.0 ** (-self._model.score(line) / (len(words) + 1)) if words else float("nan")
            tokens += len(words)
            for word in words:
                total += self._model.BaseScore(states[0], word, states[1])
                states.reverse()
        total += self._model.BaseScore(states[0], "</s>", states[1])
        return float(10.0 ** (-total / (tokens + 1))) if tokens else float("nan")

    def _tokens(self, piece: str) -> list[str]:
        # A piece of the vocabulary may have white space of its own, at which KenLM splits.
        split = piece if self._pieces is None else " ".join(self._pieces.encode_as_pieces(piece))
        return split.split()


def _loaded(path: str, load: Any) -> Any:
    try:
        return load()
    except (OSError, RuntimeError) as exc:
        if is_out_of_memory(exc) or "Cannot allocate memory" in str(exc):
            raise MemoryError(f"{path} does not fit into memory") from exc
        raise CorruptFileError(f"{path} cannot be read: {' '.join(str(exc).split())}. {AGAIN}") from exc


def _cuts(content: memoryview) -> Iterator[tuple[int, int]]:
    """Yield the parts of a long text; each ends before a space if there is one in it, else between two characters."""
    start = 0
    while len(content) - start > PIECE_BYTES:
        stop = start + PIECE_BYTES
        space = bytes(content[start:stop]).rfind(b" ")
        if space > 0:
            stop = start + space
        while stop > start + 1 and content[stop] & 0xC0 == 0x80:
            stop -= 1
        yield start, stop
        start = stop
    yield start, len(content)


class _Normalized(dict[int, str | None]):
    """Replacement of each code point after decomposition, found once."""

    def __missing__(self, code: int) -> str | None:
        one = chr(code)
        if unicodedata.category(one) == "Nd":
            made: str | None = "0"
        elif one in _PUNCTUATION:
            made = _PUNCTUATION[one]
        else:
            made = None if unicodedata.category(one) in ("Mn", "Cc") else one
        self[code] = made
        return made


_NORMALIZED = _Normalized()


def normalized(piece: str) -> str:
    """Return a text as CCNet normalizes it for its models.

    Examples
    --------
    >>> normalized(" “Déjà vu” — 24 Stück… ")
    '"deja vu" - 00 stuck...'
    """
    return unicodedata.normalize("NFD", piece.strip().lower()).translate(_NORMALIZED)


def add_perplexity_block(
    block: Any, *, text: str, settings: PerplexitySettings, into: str, bucket: str | None
) -> Outcome:
    """Kernel of `add_perplexity`."""
    require_host(block, "add_perplexity")
    scores, which = np.full(len(block), np.nan), np.full(len(block), -1, dtype=np.int32)
    if settings.by is None:
        which[:] = 0
    else:
        for number, (value, _) in enumerate(settings.models):
            which[(block[settings.by] == value).fillna(False).to_numpy(dtype=bool)] = number
    used = {number: _held(settings.models[number][1]) for number in np.unique(which[which >= 0]).tolist()}
    is_normalized = settings.normalization == "ccnet"
    for row, content in _contents(text_chunks(block[text])):
        if which[row] >= 0:
            scores[row] = used[int(which[row])].perplexity(content, is_normalized=is_normalized)
    missing = np.isnan(scores)
    columns: dict[str, Any] = {into: pd.arrays.FloatingArray(scores, missing)}
    if bucket is not None:
        columns[bucket] = repeated_texts(BUCKETS, _buckets(scores, which, settings))
    added = {name: pd.Series(values, index=block.index) for name, values in columns.items()}
    return Outcome(block.assign(**added), counters={"rows_without_perplexity": int(missing.sum())})


def _held(found: NgramModel) -> LoadedNgramModel:
    def load() -> LoadedNgramModel:
        for path in (found.path, found.tokenizer):
            if path and not os.path.isfile(path):
                raise InputError(
                    f"add_perplexity: the file {path!r} of the model is not on this machine. Put it in a folder that all workers "
                    "can read"
                )
        if (size := os.path.getsize(found.path)) != found.size_bytes:
            raise CorruptFileError(
                f"the model {found.path!r} has {size:,} bytes on this machine, but had {found.size_bytes:,} bytes where the "
                "table was made. Copy the same file to all machines"
            )
        return LoadedNgramModel(found)

    return cached(("kenlm", found.digest, found.path), load)


def _contents(texts: pa.ChunkedArray) -> Iterator[tuple[int, memoryview]]:
    """Yield row and UTF-8 of the texts that are not null; no copies are made."""
    row = 0
    for chunk in texts.chunks:
        large = chunk.cast(pa.large_string()) if chunk.type != pa.large_string() else chunk
        offsets = np.frombuffer(large.buffers()[1], dtype=np.int64)[large.offset : large.offset + len(large) + 1]
        data = memoryview(large.buffers()[2] or b"")
        valid: npt.NDArray[np.bool_] = large.is_valid().to_numpy(zero_copy_only=False)
        for place in np.flatnonzero(valid).tolist():
            yield row + place, data[offsets[place] : offsets[place + 1]]
        row += len(large)


def _buckets(
    scores: npt.NDArray[np.float64], which: npt.NDArray[np.int32], settings: PerplexitySettings
) -> npt.NDArray[np.int32]:
    """Return the number of each row's bucket, -1 without a perplexity."""
    bounds = np.array([*settings.bounds, (np.nan, np.nan)])[which]
    numbers = (scores >= bounds[:, 0]).astype(np.int32) + (scores >= bounds[:, 1])
    numbers[np.isnan(scores)] = -1
    return numbers.astype(np.int32)
