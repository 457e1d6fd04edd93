# SPDX-License-Identifier: Apache-2.0
"""Read evaluation benchmarks from files, notice later changes, and build the table of n-grams for decontamination.

A file is JSON Lines, Parquet, or plain text with an item on each line; JSON Lines and text may be compressed. Every
string of a row counts, also in its lists and objects.
"""

from __future__ import annotations

import hashlib
import io
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson

from curator_df.errors import BadRowError, ColumnError, InputChangedError, InputError, ParameterError
from curator_df.files.storage import shown_path
from curator_df.io.formats import COMPRESSED_SUFFIXES
from curator_df.io.listing import list_files
from curator_df.io.parquet.footers import damage_of, require_one_file
from curator_df.io.streams.file_stream import ByteStream, open_bytes, open_file
from curator_df.kernels.edits.ngram_table import NgramTable, count_ngrams, make_table, table_bytes
from curator_df.memory.sizes import show_count

JSON_SUFFIXES = (".jsonl", ".ndjson", ".json")
LONGEST_LINE_BYTES = 64_000_000
"""Maximum length of an item of a benchmark, in bytes."""

Paths = str | os.PathLike[str] | Sequence[str | os.PathLike[str]] | Mapping[str, str | os.PathLike[str]]
"""Files, directories, globs or URLs; or a name for each."""


@dataclass(frozen=True)
class BenchmarkFile:
    """File of a benchmark."""

    name: str
    """Name under which matches are reported."""
    digest: str
    """Digest (BLAKE2b) of its texts and the numbers of their items."""
    path: str = field(metadata={"identity": False})
    """Path of the file."""


@dataclass(frozen=True)
class Benchmarks:
    """Texts that must not be in a corpus, as files that workers read again, and the comparison settings."""

    files: tuple[BenchmarkFile, ...]
    """Files, in order."""
    columns: tuple[str, ...]
    """Columns whose texts count; empty for all."""
    ngram_size: int
    """Number of words of an n-gram."""
    min_ngram_size: int
    """Minimum number of words of a shorter text, which is then one n-gram."""
    ngrams: int = field(metadata={"identity": False})
    """Upper bound of the number of n-grams."""
    texts: int = field(metadata={"identity": False})
    """Number of texts."""
    storage_options: Mapping[str, Any] = field(default_factory=dict, metadata={"identity": False}, repr=False)
    """Options for fsspec."""

    @property
    def digested_files(self) -> dict[str, str]:
        """Digest of each file, by path."""
        return {file.path: file.digest for file in self.files}

    @property
    def table_bytes(self) -> int:
        """Size of their table in each worker, in bytes."""
        return table_bytes(self.ngrams, self.texts)

    @property
    def key(self) -> tuple[Any, ...]:
        """Key of their table."""
        return self.files, self.columns, self.ngram_size, self.min_ngram_size

    def table(self) -> NgramTable:
        """Read the files again and make their table.

        Raises
        ------
        InputChangedError
            If a file has other texts than when the step was made.
        """
        return make_table(
            self._all_texts(), ngrams=self.ngrams, count=self.texts, size=self.ngram_size, least=self.min_ngram_size
        )

    def _all_texts(self) -> Iterator[tuple[int, int, str]]:
        left = [self.texts, self.ngrams]
        for number, file in enumerate(self.files):
            digest = _Digest()
            for item, text in item_texts(file.path, self.columns, self.storage_options):
                digest.add(item, text)
                left[0] -= 1
                left[1] -= count_ngrams(text, self.ngram_size, self.min_ngram_size)
                if min(left) < 0:
                    break
                yield number, item, text
            if digest.value != file.digest:
                raise InputChangedError(
                    f"the benchmark file {shown_path(file.path)!r} has changed since its step was made. Call drop_contaminated, "
                    "remove_contamination or add_contamination again, and write to a new output folder"
                )


def find_benchmarks(
    paths: Paths,
    *,
    columns: Sequence[str] = (),
    ngram_size: int,
    min_ngram_size: int,
    storage_options: Mapping[str, Any] | None = None,
) -> Benchmarks:
    """Read benchmarks once, to determine their contents and the size of their table."""
    options = dict(storage_options or {})
    named = _named(paths, options)
    files, ngrams, texts = [], 0, 0
    for name, path in named:
        digest, before = _Digest(), ngrams
        for item, text in item_texts(path, columns, options):
            digest.add(item, text)
            texts += 1
            ngrams += count_ngrams(text, ngram_size, min_ngram_size)
        if ngrams == before:
            raise InputError(
                f"the benchmark {path!r} has no text of {min_ngram_size} words or more to compare. Lower min_ngram_size=, "
                "or leave this file out of benchmarks="
            )
        files.append(BenchmarkFile(name, digest.value, path))
    return Benchmarks(tuple(files), tuple(columns), ngram_size, min_ngram_size, ngrams, texts, options)


def item_texts(
    path: str, columns: Sequence[str], storage_options: Mapping[str, Any] | None = None
) -> Iterator[tuple[int, str]]:
    """Yield the texts of a file in order, each with the number of its row, from 0."""
    rows = _parquet_rows if path.lower().endswith(".parquet") else _line_rows
    for number, row in rows(path, storage_options):
        if columns and isinstance(row, dict):
            if missing := [name for name in columns if name not in row]:
                listed = ", ".join(map(repr, row))
                raise ColumnError(
                    f"row {number} of the benchmark {path!r} has no column {missing[0]!r}. It has: {listed}. Name "
                    "one of these with benchmark_columns="
                )
            row = [row[name] for name in columns]  # noqa: PLW2901 - only these are used below
        yield from ((number, text) for text in _strings(row))


class _Digest:
    def __init__(self) -> None:
        self._hash = hashlib.blake2b(digest_size=16)

    def add(self, item: int, text: str) -> None:
        encoded = text.encode("utf-8", "surrogatepass")
        self._hash.update(b"%d %d " % (item, len(encoded)) + encoded)

    @property
    def value(self) -> str:
        return self._hash.hexdigest()


def _named(paths: Paths, options: dict[str, Any]) -> list[tuple[str, str]]:
    entries: Iterable[tuple[str | None, Any]] = paths.items() if isinstance(paths, Mapping) else [(None, paths)]
    named: list[tuple[str, str]] = []
    for name, entry in entries:
        listed = list_files(entry, suffixes=_suffixes(), storage_options=options).paths
        named += [(name or _name_of(path), path) for path in listed]
    if not named:
        raise ParameterError("benchmarks is empty. Pass at least one file")
    return named


def _suffixes() -> tuple[str, ...]:
    plain = (*JSON_SUFFIXES, ".txt")
    return (*plain, ".parquet", *(suffix + more for suffix in plain for more in COMPRESSED_SUFFIXES))


def _name_of(path: str) -> str:
    """Return a file's name without its suffixes."""
    name = path.rstrip("/").rpartition("/")[2]
    for suffix in sorted(_suffixes(), key=len, reverse=True):
        if name.lower().endswith(suffix):
            return name[: -len(suffix)]
    return name


def _line_rows(path: str, storage_options: Mapping[str, Any] | None) -> Iterator[tuple[int, Any]]:
    plain = path.lower().removesuffix(next((end for end in COMPRESSED_SUFFIXES if path.lower().endswith(end)), ""))
    with open_bytes(path, storage_options) as stream:
        lines = io.BufferedReader(_Readable(stream))
        number = 0
        while line := lines.readline(LONGEST_LINE_BYTES + 1):
            if len(line) > LONGEST_LINE_BYTES:
                raise BadRowError(
                    f"line {number + 1} of the benchmark {path!r} is longer than 64 MB. Check that benchmarks= names the "
                    "right file"
                )
            if line.strip():
                yield number, _parsed(line, path, number) if plain.endswith(JSON_SUFFIXES) else _decoded(line)
            number += 1


def _parsed(line: bytes, path: str, number: int) -> Any:
    try:
        return orjson.loads(line)
    except orjson.JSONDecodeError as exc:
        raise BadRowError(
            f"line {number + 1} of the benchmark {path!r} is not JSON: {exc}. Correct or delete the line"
        ) from exc


def _decoded(line: bytes) -> str:
    return line.decode("utf-8", "replace")


def _parquet_rows(path: str, storage_options: Mapping[str, Any] | None) -> Iterator[tuple[int, Any]]:
    import pyarrow.parquet as pq

    number = 0
    with open_file(path, storage_options) as file, damage_of(path):
        parquet = pq.ParquetFile(file, page_checksum_verification=True)
        require_one_file(file, path, parquet.metadata)
        for batch in parquet.iter_batches(batch_size=1_000):
            for row in batch.to_pylist():
                yield number, row
                number += 1
        if number != parquet.metadata.num_rows:
            raise OSError(
                f"the footer of this Parquet file gives {show_count(parquet.metadata.num_rows, 'row')}, but its pages have "
                f"{number:,}, so the file is damaged"
            )


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for inner in value.values():
            yield from _strings(inner)
    elif isinstance(value, (list, tuple)):
        for inner in value:
            yield from _strings(inner)


class _Readable(io.RawIOBase):
    """Stream of bytes with the interface that `io.BufferedReader` needs."""

    def __init__(self, stream: ByteStream) -> None:
        self._stream = stream

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        return self._stream.readinto(memoryview(buffer))
