# SPDX-License-Identifier: Apache-2.0
"""Find texts of benchmarks in a corpus: `add_contamination`, `drop_contaminated` and `remove_contamination`."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import dask.dataframe as dd
import numpy as np
import pandas as pd
import pyarrow as pa

from curator_df.arguments import path_of, require_mapping, strings_of
from curator_df.core.columns import refuse_columns, require_text
from curator_df.core.ranges.blocks import BlockKernel, Outcome, map_blocks
from curator_df.core.ranges.price import Price
from curator_df.errors import ParameterError
from curator_df.io.benchmarks import Benchmarks, Paths, find_benchmarks
from curator_df.kernels.compiling import kernel_sets
from curator_df.kernels.edits.ngram_match import GRAMS, NUMBER, START, STOP
from curator_df.kernels.edits.ngram_table import (
    NgramTable,
    find_passages,
    places_of,
    rows_with_passages,
    without_passages,
)
from curator_df.kernels.rows.keep_rows import keep_rows
from curator_df.kernels.text.buffers import TextSpan, text_dtype, text_spans, with_plain_text
from curator_df.ops.cleaning.rewriting import SPLICE_FACTOR
from curator_df.ops.host_only import require_host

REASON = "contaminated"
SHOWN_BYTES = 100
"""Most bytes of a passage that are shown."""
MOST_PASSAGES = 16
"""Most passages of a text that are shown."""
ROWS_AT_A_TIME = 256
"""Number of rows whose passages are held as Python objects."""
PASSAGE: Any = pa.struct(
    [
        ("benchmark", pa.large_string()),
        ("item", pa.int64()),
        ("start", pa.int64()),
        ("stop", pa.int64()),
        ("ngrams", pa.int64()),
        ("passage", pa.large_string()),
    ]
)
PASSAGES: Any = pd.ArrowDtype(pa.list_(PASSAGE))
"""Type of the column that `add_contamination` adds."""

MOST_TABLES = 4
"""Tables that a process keeps: of the steps of one chain; older ones go."""

_tables: dict[Any, NgramTable] = {}
_lock = threading.Lock()


def add_contamination_block(block: Any, *, text: str, benchmarks: Benchmarks, into: str) -> Outcome:
    """Kernel of `add_contamination`."""
    require_host(block, "add_contamination")
    table, counters = table_of(benchmarks), {"rows_contaminated": 0, "passages": 0}
    chunks = [_passages(span, table, benchmarks, counters) for span in text_spans(block[text], ROWS_AT_A_TIME)]
    column = PASSAGES.__from_arrow__(pa.chunked_array(chunks, type=PASSAGES.pyarrow_dtype))
    return Outcome(block.assign(**{into: pd.Series(column, index=block.index)}), counters=counters)


def drop_contaminated_block(block: Any, *, text: str, benchmarks: Benchmarks) -> Outcome:
    """Kernel of `drop_contaminated`."""
    require_host(block, "drop_contaminated")
    table, keep, counters = table_of(benchmarks), np.ones(len(block), dtype=np.bool_), Counter[str]()
    for span in text_spans(block[text]):
        rows = rows_with_passages(span, table)
        keep[rows + span.first_row] = False
        for row in rows.tolist():
            counters[_first_match(span, row, table, benchmarks)[0]] += 1
    if keep.all():
        return Outcome(block)
    gone = int((~keep).sum())
    return Outcome(
        keep_rows(block, keep),
        {REASON: gone},
        counters,
        rejects=lambda: _rejects(keep_rows(block, ~keep), text, table, benchmarks),
    )


def _first_match(span: TextSpan, row: int, table: NgramTable, benchmarks: Benchmarks) -> tuple[str, int, int]:
    """Return the benchmark and the item of the first passage of a text, and its first character."""
    first = find_passages(span, row, table, 1)
    ((name, item),) = _names(first, table, benchmarks)
    return name, item, places_of(span, row, first)[0][0]


def _rejects(removed: Any, text: str, table: NgramTable, benchmarks: Benchmarks) -> tuple[Any, dict[str, Any]]:
    spans = text_spans(removed[text])
    firsts = [_first_match(span, row, table, benchmarks) for span in spans for row in range(len(span))]
    rules = [f"{name}:{item}" for name, item, _ in firsts]
    return removed, {
        "reason": [REASON] * len(rules),
        "rule": rules,
        "value": [float(place) for *_, place in firsts],
        "threshold": [float(benchmarks.ngram_size)] * len(rules),
    }


def remove_contamination_block(block: Any, *, text: str, benchmarks: Benchmarks, margin: int, least: int) -> Outcome:
    """Kernel of `remove_contamination`."""
    require_host(block, "remove_contamination")
    block = with_plain_text(block, text)
    texts, counters = without_passages(block[text], table_of(benchmarks), margin=margin, least=least)
    return Outcome(block.assign(**{text: texts}) if counters["rows_changed"] else block, counters=counters)


def table_of(benchmarks: Benchmarks) -> NgramTable:
    """Return the table of benchmarks, which this process makes once."""
    with _lock:
        if benchmarks.key not in _tables:
            while len(_tables) >= MOST_TABLES:
                del _tables[next(iter(_tables))]
            _tables[benchmarks.key] = benchmarks.table()
        return _tables[benchmarks.key]


def _names(regions: Any, table: NgramTable, benchmarks: Benchmarks) -> list[tuple[str, int]]:
    """Return the benchmark and the item of the first n-gram of each passage."""
    numbers = regions[:, NUMBER]
    names = [benchmarks.files[number].name for number in table.benchmarks[numbers]]
    return list(zip(names, table.items[numbers].tolist(), strict=True))


def _passages(span: TextSpan, table: NgramTable, benchmarks: Benchmarks, counters: dict[str, int]) -> pa.Array:
    """Return the passages of each text of a span as an array of lists, null where there are none."""
    offsets, values = np.zeros(len(span) + 1, dtype=np.int32), tuple[list[Any], ...]([] for _ in PASSAGE)
    for row in rows_with_passages(span, table).tolist():
        found = find_passages(span, row, table, MOST_PASSAGES)
        named, places = _names(found, table, benchmarks), places_of(span, row, found)
        offsets[row + 1] = len(found)
        for (name, item), (first, last), region in zip(named, places, found.tolist(), strict=True):
            shown = span.data[region[START] : min(region[STOP], region[START] + SHOWN_BYTES)].tobytes()
            one = (name, item, first, last, region[GRAMS], shown.decode("utf-8", "ignore"))
            for column, value in zip(values, one, strict=True):
                column.append(value)
    counters["rows_contaminated"] += int((offsets > 0).sum())
    counters["passages"] += len(values[0])
    is_null = np.append(offsets[1:] == 0, False)
    arrays = [pa.array(column, kind.type) for column, kind in zip(values, PASSAGE, strict=True)]
    structs = pa.StructArray.from_arrays(arrays, fields=list(PASSAGE))
    return pa.ListArray.from_arrays(pa.array(np.cumsum(offsets, dtype=np.int32), mask=is_null), structs)


# Measured (tests/contracts/memory_server.py) where every row has passages: 1.4 on rows of 100 bytes, 3.2 on rows of 17.
ADD_FACTOR = 3.3
# What `keep_where` takes, which copies rows in the same way.
DROP_FACTOR = 1.2
MAX_NGRAM_SIZE = 100
LEAST_NGRAM_SIZE = 4
"""Shorter ones are in any text."""


def add_contamination(
    df: dd.DataFrame,
    benchmarks: Paths,
    *,
    benchmark_columns: Sequence[str] = (),
    ngram_size: int = 13,
    min_ngram_size: int = 8,
    into: str = "contamination",
    text: str = "text",
    storage_options: dict[str, Any] | None = None,
) -> dd.DataFrame:
    """Add the passages of each text that share an n-gram with a benchmark, and their positions.

    Parameters
    ----------
    df : dask.dataframe.DataFrame
        The table.
    benchmarks : str, path, list of them, or mapping of names to them
        Files, directories, globs or URLs: JSON Lines, Parquet, or plain text with one item per line. All but Parquet
        may be compressed. Without names, matches are reported under the file name.
    benchmark_columns : sequence of str, optional
        Columns of the benchmarks to compare. By default every string of a row, including those in lists and objects.
    ngram_size : int, default 13
        Words per n-gram, from 4 to 100.
    min_ngram_size : int, default 8
        A benchmark text with fewer words than ``ngram_size``, but at least this many, counts as one n-gram as a whole.
        Shorter texts are ignored.
    into : str, default "contamination"
        Name of the column.
    text : str, default "text"
        The text column.
    storage_options : dict, optional
        fsspec options for the benchmarks.

    Returns
    -------
    dask.dataframe.DataFrame
        The same rows with a column of lists, null where nothing was found. Each passage has ``benchmark`` and ``item``
        (row number in the benchmark, from 0) of its first n-gram; ``start`` and ``stop``, in characters of the text;
        ``ngrams``, the number of n-grams found in it; and ``passage``, its first 100 bytes. At most the first 16
        passages of a text are listed.

    Raises
    ------
    InputError
        If a file does not exist or has no text of ``min_ngram_size`` words; when computing, if the benchmark texts have
        changed.
    BadRowError
        If a line of a benchmark is not valid JSON.
    ColumnError
        If the text column or a benchmark column is missing, or ``into`` already exists.
    ParameterError
        If a size is out of range.
    UnsupportedBackendError
        If the blocks are cuDF blocks.

    See Also
    --------
    drop_contaminated, remove_contamination

    Notes
    -----
    Rows: same. Columns: plus ``contamination``. Backends: pandas. Peak extra memory: 3.3 x block where every row has
    some, and a table in each worker. Computes: no; it reads the benchmarks.

    Overlapping n-grams form one passage.
    Words are compared in lower case and without punctuation, across line ends; positions refer to the unchanged text.
    The benchmarks are read when the operator is called, because a resumed run compares their content with that of before,
    and once in each worker, into a table of 24 to 48 bytes per n-gram, which the plan counts. In texts without spaces
    between words, each stretch is compared as if it were one word. Normalize texts and benchmarks in the same way
    first: accented letters have two Unicode forms.

    Examples
    --------
    >>> import tempfile, dask.dataframe as dd
    >>> import pandas as pd
    >>> question = "Who was it that said to be or not to be, that is the question?"
    >>> with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
    ...     _ = file.write(question)
    ...     file.flush()
    ...     docs = dd.from_pandas(pd.DataFrame({"text": ["A quiz. " + question.upper(), "Not to be."]}), npartitions=1)
    ...     found = docs.pipe(add_contamination, benchmarks=file.name).compute()
    >>> [match] = found["contamination"][0]
    >>> match["item"], match["start"], match["stop"], match["ngrams"]
    (0, 8, 69, 3)
    """
    refuse_columns(df, "add_contamination", into)
    found = _benchmarks(
        "add_contamination", df, text, benchmarks, benchmark_columns, ngram_size, min_ngram_size, storage_options
    )
    parameters = {"text": text, "benchmarks": found, "into": into}
    kernel = _kernel("add_contamination", add_contamination_block, parameters, found, ADD_FACTOR)
    return map_blocks(df, kernel, meta=df._meta.assign(**{into: pd.Series([], dtype=PASSAGES)}))


def drop_contaminated(
    df: dd.DataFrame,
    benchmarks: Paths,
    *,
    benchmark_columns: Sequence[str] = (),
    ngram_size: int = 13,
    min_ngram_size: int = 8,
    text: str = "text",
    storage_options: dict[str, Any] | None = None,
) -> dd.DataFrame:
    """Drop the rows whose text shares an n-gram with a benchmark.

    Parameters
    ----------
    df : dask.dataframe.DataFrame
        The table.
    benchmarks : str, path, list of them, or mapping of names to them
        Files, directories, globs or URLs: JSON Lines, Parquet, or plain text with one item per line. All but Parquet
        may be compressed. Without names, matches are reported under the file name.
    benchmark_columns : sequence of str, optional
        Columns of the benchmarks to compare. By default every string of a row, including those in lists and objects.
    ngram_size : int, default 13
        Words per n-gram, from 4 to 100.
    min_ngram_size : int, default 8
        A benchmark text with fewer words than ``ngram_size``, but at least this many, counts as one n-gram as a whole.
        Shorter texts are ignored.
    text : str, default "text"
        The text column.
    storage_options : dict, optional
        fsspec options for the benchmarks.

    Returns
    -------
    dask.dataframe.DataFrame
        The remaining rows in order, with their index; dropped rows are counted as ``contaminated``.

    Raises
    ------
    InputError
        If a file does not exist or has no text of ``min_ngram_size`` words; when computing, if the benchmark texts have
        changed.
    BadRowError
        If a line of a benchmark is not valid JSON.
    ColumnError
        If the text column or a benchmark column is missing.
    ParameterError
        If a size is out of range.
    UnsupportedBackendError
        If the blocks are cuDF blocks.

    See Also
    --------
    add_contamination, remove_contamination

    Notes
    -----
    Rows: subset. Columns: same. Backends: pandas. Peak extra memory: 1.2 x block, and a table in each worker. Computes:
    no; it reads the benchmarks.

    It looks at each row by itself, so unlike the drops of duplicates it is not pending. In the rejects, ``reject_rule``
    is the benchmark and item of the first match (``name:item``), and ``reject_value`` is the position of its first
    character. The receipt counts rows by benchmark. To see all matches use `add_contamination`; to cut them out use
    `remove_contamination`.
    Words are compared in lower case and without punctuation, across line ends; positions refer to the unchanged text.
    The benchmarks are read when the operator is called, because a resumed run compares their content with that of before,
    and once in each worker, into a table of 24 to 48 bytes per n-gram, which the plan counts. In texts without spaces
    between words, each stretch is compared as if it were one word. Normalize texts and benchmarks in the same way
    first: accented letters have two Unicode forms.

    References
    ----------
    .. [1] Brown et al. 2020, https://arxiv.org/abs/2005.14165, appendix C: 13-grams
    .. [2] nemo_curator 0.9.0, modules/task.py, TaskDecontamination

    Examples
    --------
    >>> import tempfile, dask.dataframe as dd
    >>> import pandas as pd
    >>> question = "Who was it that said to be or not to be, that is the question?"
    >>> with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
    ...     _ = file.write(question)
    ...     file.flush()
    ...     docs = dd.from_pandas(pd.DataFrame({"text": ["A quiz. " + question.upper(), "Not to be."]}), npartitions=1)
    ...     docs.pipe(drop_contaminated, benchmarks=file.name).compute()["text"].tolist()
    ['Not to be.']
    """
    found = _benchmarks(
        "drop_contaminated", df, text, benchmarks, benchmark_columns, ngram_size, min_ngram_size, storage_options
    )
    parameters = {"text": text, "benchmarks": found}
    kernel = _kernel("drop_contaminated", drop_contaminated_block, parameters, found, DROP_FACTOR)
    return map_blocks(df, kernel, meta=df._meta)


def remove_contamination(
    df: dd.DataFrame,
    benchmarks: Paths,
    *,
    benchmark_columns: Sequence[str] = (),
    ngram_size: int = 13,
    min_ngram_size: int = 8,
    margin: int = 200,
    min_piece_chars: int = 200,
    text: str = "text",
    storage_options: dict[str, Any] | None = None,
) -> dd.DataFrame:
    """Cut the passages that share an n-gram with a benchmark out of texts, extended to sentence ends.

    Parameters
    ----------
    df : dask.dataframe.DataFrame
        The table.
    benchmarks : str, path, list of them, or mapping of names to them
        Files, directories, globs or URLs: JSON Lines, Parquet, or plain text with one item per line. All but Parquet
        may be compressed. Without names, matches are reported under the file name.
    benchmark_columns : sequence of str, optional
        Columns of the benchmarks to compare. By default every string of a row, including those in lists and objects.
    ngram_size : int, default 13
        Words per n-gram, from 4 to 100.
    min_ngram_size : int, default 8
        A benchmark text with fewer words than ``ngram_size``, but at least this many, counts as one n-gram as a whole.
        Shorter texts are ignored.
    margin : int, default 200
        Characters to remove before and after a passage as well; the cut then extends to the next ``.``, ``!`` or ``?``.
    min_piece_chars : int, default 200
        When a text is cut, only pieces with more characters than this are kept.
    text : str, default "text"
        The text column.
    storage_options : dict, optional
        fsspec options for the benchmarks.

    Returns
    -------
    dask.dataframe.DataFrame
        The same rows; null stays null. The remaining pieces of a text are joined by an empty line; a text may become
        empty.

    Raises
    ------
    InputError
        If a file does not exist or has no text of ``min_ngram_size`` words; when computing, if the benchmark texts have
        changed.
    BadRowError
        If a line of a benchmark is not valid JSON.
    ColumnError
        If the text column or a benchmark column is missing.
    ParameterError
        If a size is out of range.
    UnsupportedBackendError
        If the blocks are cuDF blocks.

    See Also
    --------
    add_contamination, drop_contaminated

    Notes
    -----
    Rows: same. Columns: same; ``text`` changes. Backends: pandas. Peak extra memory: 1.4 x block, and a table in each
    worker. Computes: no; it reads the benchmarks.

    NeMo Curator makes each piece a document, drops documents with more than 10 pieces, and ignores n-grams that occur
    more than 10 times in the corpus. Its cuts are too far to the left by the number of punctuation characters before
    them, and it joins the two words at a line end. Here a row stays one row, so no id occurs twice; every match counts;
    and positions are those in the text. The receipt counts ``rows_changed`` and ``passages``.
    Words are compared in lower case and without punctuation, across line ends; positions refer to the unchanged text.
    The benchmarks are read when the operator is called, because a resumed run compares their content with that of before,
    and once in each worker, into a table of 24 to 48 bytes per n-gram, which the plan counts. In texts without spaces
    between words, each stretch is compared as if it were one word. Normalize texts and benchmarks in the same way
    first: accented letters have two Unicode forms.

    References
    ----------
    .. [1] nemo_curator 0.9.0, modules/task.py, TaskDecontamination

    Examples
    --------
    >>> import tempfile, dask.dataframe as dd
    >>> import pandas as pd
    >>> question = "Who was it that said to be or not to be, that is the question?"
    >>> with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
    ...     _ = file.write(question)
    ...     file.flush()
    ...     docs = dd.from_pandas(pd.DataFrame({"text": ["A quiz. " + question.upper(), "Not to be."]}), npartitions=1)
    ...     cut = docs.pipe(remove_contamination, benchmarks=file.name, margin=0, min_piece_chars=0)
    ...     cut.compute()["text"].tolist()
    ['A quiz.', 'Not to be.']
    """
    for name, value in (("margin", margin), ("min_piece_chars", min_piece_chars)):
        if not isinstance(value, int) or value < 0:
            raise ParameterError(
                f"remove_contamination: {name}={value!r} is not a number of characters. Use a whole number of 0 or more"
            )
    found = _benchmarks(
        "remove_contamination", df, text, benchmarks, benchmark_columns, ngram_size, min_ngram_size, storage_options
    )
    parameters = {"text": text, "benchmarks": found, "margin": margin, "least": min_piece_chars}
    kernel = _kernel("remove_contamination", remove_contamination_block, parameters, found, SPLICE_FACTOR)
    return map_blocks(df, kernel, meta=df._meta.astype({text: text_dtype(df._meta[text].dtype)}))


def _benchmarks(
    operator: str,
    df: Any,
    text: str,
    paths: Paths,
    columns: Sequence[str],
    ngram_size: int,
    min_ngram_size: int,
    storage_options: Mapping[str, Any] | None,
) -> Benchmarks:
    """Check everything at the door, then read the benchmarks."""
    require_text(df, operator, text)
    require_host(df._meta, operator)
    for name, size, most in (
        ("ngram_size", ngram_size, MAX_NGRAM_SIZE),
        ("min_ngram_size", min_ngram_size, ngram_size),
    ):
        if not isinstance(size, int) or not LEAST_NGRAM_SIZE <= size <= most:
            raise ParameterError(
                f"{operator}: {name}={size!r} is not a number of words from {LEAST_NGRAM_SIZE} to {most}. Use a number in "
                "this range"
            )
    if storage_options is not None:
        require_mapping(operator, "storage_options", storage_options)
    for entry in paths.values() if isinstance(paths, Mapping) else (paths,):
        for path in entry if isinstance(entry, Sequence) and not isinstance(entry, str) else (entry,):
            path_of(operator, "benchmarks", path)
    return find_benchmarks(
        paths,
        columns=strings_of(operator, "benchmark_columns", columns),
        ngram_size=ngram_size,
        min_ngram_size=min_ngram_size,
        storage_options=storage_options,
    )


def _kernel(
    operator: str, function: Callable[..., Any], parameters: Mapping[str, Any], found: Benchmarks, peak_factor: float
) -> BlockKernel:
    return BlockKernel(
        operator,
        function,
        parameters,
        price=Price(peak_factor, held_bytes=found.table_bytes, is_measured=True),
        compiled=kernel_sets.CONTAMINATION,
    )
