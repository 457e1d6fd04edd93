# SPDX-License-Identifier: Apache-2.0
"""Benchmarks as files: their texts item by item, and what identifies them.

A file is JSON Lines, Parquet, or plain text with an item on each line; the first and the last may be compressed. Every
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

from curator_df.core.sizes import show_count
from curator_df.errors import BadRowError, ColumnError, InputError, ParameterError
from curator_df.io.footers import damage_of
from curator_df.io.listing import COMPRESSED_SUFFIXES, list_files
from curator_df.io.streams import ByteStream, open_bytes, open_file
from curator_df.kernels.ngram_table import NgramTable, count_ngrams, make_table, table_bytes

JSON_SUFFIXES = (".jsonl", ".ndjson", ".json")
LONGEST_LINE_BYTES = 64_000_000
"""An item of a benchmark that is longer is not an item."""

Paths = str | os.PathLike[str] | Sequence[str | os.PathLike[str]] | Mapping[str, str | os.PathLike[str]]
"""Files, directories, globs or URLs; or a name for each."""


@dataclass(frozen=True)
class BenchmarkFile:
    """One file of a benchmark."""

    name: str
    """What matches are reported under."""
    digest: str
    """BLAKE2b of its texts and the numbers of their items."""
    path: str = field(metadata={"identity": False})
    """Where it is."""


@dataclass(frozen=True)
class Benchmarks:
    """The texts that must not be in a corpus, as files that workers read again, and how they are compared."""

    files: tuple[BenchmarkFile, ...]
    """In order."""
    columns: tuple[str, ...]
    """Columns whose texts count; empty for all."""
    ngram_size: int
    """Words of an n-gram."""
    min_ngram_size: int
    """Words from which on a shorter text is one n-gram."""
    ngrams: int = field(metadata={"identity": False})
    """How many there are, or more."""
    texts: int = field(metadata={"identity": False})
    """How many there are."""
    storage_options: Mapping[str, Any] = field(default_factory=dict, metadata={"identity": False}, repr=False)
    """For fsspec."""

    @property
    def table_bytes(self) -> int:
        """What their table holds in each worker."""
        return table_bytes(self.ngrams, self.texts)

    @property
    def key(self) -> tuple[Any, ...]:
        """What a table is known by."""
        return self.files, self.columns, self.ngram_size, self.min_ngram_size

    def table(self) -> NgramTable:
        """Read the files again and make their table.

        Raises
        ------
        InputError
            If a file has other texts than when it was named.
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
                raise InputError(
                    f"the benchmark {file.path!r} has other texts than when the step was made; make it again, and write to a "
                    "new output"
                )


def find_benchmarks(
    paths: Paths,
    *,
    columns: Sequence[str] = (),
    ngram_size: int,
    min_ngram_size: int,
    storage_options: Mapping[str, Any] | None = None,
) -> Benchmarks:
    """Read benchmarks once, to know what is in them and how large their table will be."""
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
            raise InputError(f"the benchmark {path!r} has no text of {min_ngram_size} words or more to compare")
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
                raise ColumnError(f"row {number} of the benchmark {path!r} has no {missing[0]!r}; it has: {listed}")
            row = [row[name] for name in columns]  # noqa: PLW2901 - from here on only these
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
        raise ParameterError("benchmarks is empty; name at least one file")
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
                    f"line {number + 1} of the benchmark {path!r} is longer than 64 MB; it is not a benchmark"
                )
            if line.strip():
                yield number, _parsed(line, path, number) if plain.endswith(JSON_SUFFIXES) else _decoded(line)
            number += 1


def _parsed(line: bytes, path: str, number: int) -> Any:
    try:
        return orjson.loads(line)
    except orjson.JSONDecodeError as exc:
        raise BadRowError(f"line {number + 1} of the benchmark {path!r} is no JSON: {exc}") from exc


def _decoded(line: bytes) -> str:
    return line.decode("utf-8", "replace")


def _parquet_rows(path: str, storage_options: Mapping[str, Any] | None) -> Iterator[tuple[int, Any]]:
    import pyarrow.parquet as pq

    number = 0
    with open_file(path, storage_options) as file, damage_of(path):
        parquet = pq.ParquetFile(file, page_checksum_verification=True)
        for batch in parquet.iter_batches(batch_size=1_000):
            for row in batch.to_pylist():
                yield number, row
                number += 1
        if number != parquet.metadata.num_rows:
            raise OSError(
                f"the footer says {show_count(parquet.metadata.num_rows, 'row')}, and the pages hold {number:,}"
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
    """A stream of bytes with the face that `io.BufferedReader` wants."""

    def __init__(self, stream: ByteStream) -> None:
        self._stream = stream

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        return self._stream.readinto(memoryview(buffer))
