# SPDX-License-Identifier: Apache-2.0
"""An index of the documents of a corpus that grows: `open_index`.

The folder has ``index.json`` (settings), ``runs/000001/`` (the kept rows of a run, as Parquet, with the journal and receipt of an
output) and ``removed/000001.json`` (a removal, and the runs that it applies to). A run counts once its receipt exists. Nothing is
ever changed but the folder of the run that is being written.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypedDict, cast

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow.parquet as pq

from curator_df.arguments import choose, require_string, strings_of
from curator_df.core.fingerprint import fingerprint
from curator_df.core.ranges.blocks import BlockKernel, Outcome, map_blocks
from curator_df.core.ranges.journal import Journal
from curator_df.core.ranges.price import Price
from curator_df.errors import CorruptFileError, InputError, ParameterError
from curator_df.exchange.stored_keys import KEY_COLUMN, KEY_TYPE
from curator_df.files.storage import JOURNAL_FOLDER, FileRecord, Folder, output_errors, reading_errors
from curator_df.io.output.formats import folder_at
from curator_df.io.parquet.reader import read_parquet
from curator_df.kernels.minhash.scheme import Scheme, SchemeName
from curator_df.kernels.minhash.stored_signatures import stored_dtype
from curator_df.kernels.rows.content_hash import Normalize
from curator_df.kernels.rows.keep_rows import keep_rows
from curator_df.ops.filters.published import scheme_of
from curator_df.ops.filters.where import require_expression
from curator_df.suggestions import suggests_names

SETTINGS = "index.json"
FORMAT = 1
"""Version of the folder's format."""
BASE = f"{JOURNAL_FOLDER}/base.json"
"""File of a run that names its output, and the runs and removals that it was decided with."""
SIGNATURE_COLUMN = "minhash"
DOCUMENT_COLUMNS = ("run", "source", "id")
TEXT: Any = pd.StringDtype("pyarrow")
COUNT_ROWS = 1 << 16
"""Rows that are read together to count what a removal removes."""
_ALL = slice(None)


class Removal(TypedDict):
    """Documents that were removed, as a file of the index has it."""

    where: str
    """Expression that they match."""
    runs: list[str]
    """Names of the runs that were there."""


@dataclass(frozen=True)
class Base:
    """State of an index: the complete runs, and the number of removals."""

    runs: tuple[str, ...]
    """Names of the runs, in order."""
    removals: int
    """Number of the first removals that apply."""


@suggests_names
@dataclass(frozen=True)
class Index:
    """Keys or signatures of the documents of a corpus, with the runs that added them (see `open_index`).

    See Also
    --------
    open_index, drop_exact_duplicates, drop_near_duplicates
    """

    path: str
    """The folder."""
    scheme: Scheme | None
    """Scheme of the signatures; None for an index of keys."""
    subset: tuple[str, ...]
    """Columns that are compared: one text column for signatures."""
    normalize: Normalize | None
    """Normalization of texts that are compared by keys."""
    id: str
    """Column that names a document in its source."""
    source_column: str | None
    """Column that names the source of a document; None if documents have none."""
    _folder: Folder = field(repr=False)

    @property
    def runs(self) -> pd.DataFrame:
        """The runs that appended rows, in order: ``run``, ``output``, ``rows`` (appended), ``is_complete``."""
        rows = []
        for name in self._names:
            journal = Journal(self._folder.below(f"runs/{name}"))
            receipt, base = journal.receipt, self._base_of(name)
            rows.append((name, base["output"], 0 if receipt is None else receipt["rows_written"], receipt is not None))
        return pd.DataFrame(rows, columns=["run", "output", "rows", "is_complete"])

    @property
    def removals(self) -> pd.DataFrame:
        """The removals, in order: ``where``, and the last ``run`` that it applies to."""
        rows = [(one["where"], one["runs"][-1]) for one in self._removals()]
        return pd.DataFrame(rows, columns=["where", "run"])

    def documents(self) -> Any:
        """Return the documents of the index as a lazy table: ``run``, ``source``, ``id``, and ``content_key`` or ``minhash``.

        Returns
        -------
        dask.dataframe.DataFrame
            Documents of complete runs that were not removed.

        Raises
        ------
        InputError
            If no run has appended documents yet.

        See Also
        --------
        open_index

        Notes
        -----
        Computes: no.
        """
        table = self._documents(self._state())
        if table is None:
            raise InputError(
                f"the index {self.path!r} has no documents yet. Drop duplicates with index= and write the output first"
            )
        return table

    def remove(self, where: str) -> int:
        """Remove documents: what was dropped because of them is kept again when it is read by a later run.

        Parameters
        ----------
        where : str
            Expression over ``run``, ``source`` and ``id`` (text), such as ``"source == 'forum'"``, ``"run == '000002'"`` or
            ``"id in ['a', 'b']"``. It applies to the runs that are complete now, and not to documents that are appended later.

        Returns
        -------
        int
            Number of documents that were removed.

        Raises
        ------
        ParameterError
            If the expression matches no document, or is not a condition.
        OutputInUseError
            If a run is appending to the index.
        CorruptFileError
            If a file of the index is damaged or missing.

        See Also
        --------
        open_index

        Notes
        -----
        Computes: yes, in this process: the three columns are read in pieces. Outputs that were written before do not change.
        """
        require_string("Index.remove", "where", where)
        named = self._meta[list(DOCUMENT_COLUMNS)]
        require_expression("Index.remove", named, where)
        found = named.eval(where)
        if not isinstance(found, pd.Series) or not pd.api.types.is_bool_dtype(found.dtype):
            raise ParameterError(
                f"Index.remove: {where!r} is not true or false for each document. Compare a column with a value, as in "
                "\"source == 'forum'\""
            )
        with Journal(self._folder):
            state = self._state()
            self._require_whole(state)
            count = sum(int(_holds(block, where).sum()) for block in self._pieces(state))
            if count == 0:
                raise ParameterError(
                    f"Index.remove: no document of {self.path!r} matches {where!r}. Look at them with index.documents()"
                )
            removal = Removal(where=where, runs=[*state.runs])
            name = f"removed/{state.removals + 1:06d}.json"
            self._folder.write(name, json.dumps(removal, indent=1).encode())
        return count

    @property
    def _column(self) -> str:
        return KEY_COLUMN if self.scheme is None else SIGNATURE_COLUMN

    @cached_property
    def _meta(self) -> pd.DataFrame:
        dtype: Any = KEY_TYPE if self.scheme is None else stored_dtype(self.scheme)
        texts = {name: pd.array([], dtype=TEXT) for name in DOCUMENT_COLUMNS}
        return pd.DataFrame({**texts, self._column: pd.array([], dtype=dtype)})

    @property
    def _names(self) -> list[str]:
        """Names of all runs, also of interrupted ones."""
        parts = (name.split("/") for name in self._folder.names() if name.startswith("runs/") and name.endswith(BASE))
        return sorted(part[1] for part in parts)

    @property
    def _new_name(self) -> str:
        """Name of the next run: never that of an earlier one, to which removals and runs may refer even if it was deleted."""
        known = [*self._names, *(name for one in self._removals() for name in one["runs"])]
        known += [name for run in self._names for name in self._base_of(run)["runs"]]
        return f"{int(max(known, default='0')) + 1:06d}"

    def _base_of(self, name: str) -> dict[str, Any]:
        return _object_in(self._folder, f"runs/{name}/{BASE}")

    def _removals(self) -> list[Removal]:
        names = sorted(name for name in self._folder.names() if name.startswith("removed/"))
        return [cast("Removal", _object_in(self._folder, name)) for name in names]

    def _is_complete(self, name: str) -> bool:
        return self._folder.exists(f"runs/{name}/{JOURNAL_FOLDER}/receipt.json")

    def _state(self) -> Base:
        return Base(tuple(filter(self._is_complete, self._names)), len(self._removals()))

    def _identity(self, base: Base) -> str:
        """Digest of the documents of a state, which stays when the folder is moved or a file is restored from a copy."""
        runs = [Journal(self._folder.below(f"runs/{name}")).run for name in base.runs]
        removals = [(one["where"], one["runs"]) for one in self._removals()[: base.removals]]
        return fingerprint([None if run is None else run["id"] for run in runs], removals)

    def _documents(self, base: Base, columns: Sequence[str] | slice = _ALL) -> Any:
        """Return the documents of a state as a lazy table; None if no run had rows."""
        paths = [self._folder.below(f"runs/{name}").url for name in base.runs]
        if not paths:
            return None
        self._require_files(base)
        table = read_parquet(paths, storage_options=self._folder.options or None)
        removals = [(one["where"], tuple(one["runs"])) for one in self._removals()[: base.removals]]
        if removals:
            parameters = {"removals": tuple(removals)}
            kernel = BlockKernel("open_index", keep_documents, parameters, price=Price(1.2))
            table = map_blocks(table, kernel, meta=table._meta)
        return table[list(self._meta.columns) if isinstance(columns, slice) else list(columns)]

    def _pieces(self, base: Base) -> Iterator[pd.DataFrame]:
        """Yield the run, source and ID of the documents of a state, in pieces."""
        removals = [(one["where"], tuple(one["runs"])) for one in self._removals()[: base.removals]]
        for name in base.runs:
            home = self._folder.below(f"runs/{name}")
            for file in sorted(one for one in home.names() if one.endswith(".parquet")):
                with reading_errors(home.path(file)), home.filesystem.open(home.path(file), "rb") as opened:
                    batches = pq.ParquetFile(opened).iter_batches(COUNT_ROWS, columns=list(DOCUMENT_COLUMNS))
                    for batch in batches:
                        block = batch.to_pandas(types_mapper=lambda _: TEXT)
                        yield keep_documents(block, removals=removals).block

    def _require_files(self, base: Base) -> None:
        """Raise `CorruptFileError` unless all files of a state are there."""
        for name in base.runs:
            home = self._folder.below(f"runs/{name}")
            present = set(home.names())
            if not present:
                raise self._damaged(name, home.url)
            for file in self._files_of(home):
                if file.name not in present:
                    raise self._damaged(name, home.path(file.name))

    def _require_whole(self, base: Base) -> None:
        """Raise `CorruptFileError` unless all files of a state are as they were written."""
        for name in base.runs:
            home = self._folder.below(f"runs/{name}")
            for file in self._files_of(home):
                if not home.has_content(file):
                    raise self._damaged(name, home.path(file.name))

    def _files_of(self, home: Folder) -> Iterator[FileRecord]:
        return (file for done in Journal(home).done() for file in done.files)

    def _damaged(self, name: str, path: str) -> CorruptFileError:
        error = CorruptFileError(
            f"{path} is damaged or missing: it is not what run {name} appended to the index {self.path!r}. Restore it from a "
            "copy, or make the index again: read each output in index.runs, in their order, and write it with an index in "
            "another folder"
        )
        error.path = path
        return error


def open_index(
    path: str | os.PathLike[str],
    *,
    scheme: Scheme | SchemeName | None = None,
    subset: str | Sequence[str] = "text",
    normalize: Normalize | None = None,
    id: str | None = None,  # noqa: A002 - what users call it
    source_column: str | None = None,
    storage_options: dict[str, Any] | None = None,
) -> Index:
    """Open the index of a corpus that grows, or create it: each run drops what the corpus has, and appends what it keeps.

    Parameters
    ----------
    path : str or path
        Folder of the index, or an fsspec URL. It is created by the first call; later calls need the path alone.
    scheme : Scheme or str, optional
        With a scheme, documents are compared by MinHash signatures (`drop_near_duplicates`); without, by their content keys
        (`drop_exact_duplicates`).
    subset : str or list of str, default "text"
        Columns that are compared; with a scheme the text column.
    normalize : {"case_and_spaces"}, optional
        Normalization of texts that are compared by content keys, as for `drop_exact_duplicates`.
    id : str, default "id"
        Column of text or integers that names a document within its source.
    source_column : str, optional
        Column that names the source of a document.
    storage_options : dict, optional
        fsspec options.

    Returns
    -------
    Index
        The index: ``index.runs``, ``index.removals``, ``index.documents()``, ``index.remove(where)``; and for the ``index=``
        of the two operators.

    Raises
    ------
    ParameterError
        If the index was made with other settings than given, or by a later version.

    See Also
    --------
    drop_exact_duplicates, drop_near_duplicates, read_parquet

    Notes
    -----
    Computes: no.

    A document takes 24 bytes of disk with keys, and 24 bytes and 4 or 8 for each hash with signatures, in addition to its run,
    source and ID.

    A run that is killed leaves the index as it was. See :doc:`the how-to </how_to/grow_a_corpus>`.

    Examples
    --------
    >>> import tempfile
    >>> index = open_index(tempfile.mkdtemp(), source_column="source")
    >>> index.subset, len(index.runs)
    (('text',), 0)
    """
    if normalize is not None:
        choose("open_index", "normalize", normalize, Normalize)
    folder = folder_at(path, storage_options)
    if scheme is not None and normalize is not None:
        raise ParameterError(
            f"open_index: with scheme=, texts are normalized as the scheme says, so normalize={normalize!r} cannot be used. "
            "Leave it out, or use scheme.replace(normalize=...)"
        )
    given: dict[str, Any] = {
        "scheme": None if scheme is None else plain_setting(scheme_of("open_index", scheme)),
        "subset": list(strings_of("open_index", "subset", subset)) if subset != "text" else None,
        "normalize": normalize,
        "id": id,
        "source_column": source_column,
    }
    with reading_errors(folder.url):
        stored = _object_in(folder, SETTINGS) if folder.exists(SETTINGS) else None
        is_usable = stored is not None or not folder.names()
    if not is_usable:
        raise ParameterError(
            f"open_index: {folder.url!r} has files, but no {SETTINGS}, so it is not an index. Use another folder"
        )
    if stored is not None:
        _require_settings(folder, stored, given)
    else:
        stored = {"format": FORMAT, **given, "subset": given["subset"] or ["text"], "id": id or "id"}
        with output_errors(folder):
            folder.write(SETTINGS, json.dumps(stored, indent=1).encode())
    plain = stored["scheme"]
    return Index(
        folder.url,
        None if plain is None else Scheme(**plain),
        tuple(stored["subset"]),
        stored["normalize"],
        stored["id"],
        stored["source_column"],
        folder,
    )


def _object_in(folder: Folder, name: str) -> dict[str, Any]:
    """Return the content of a JSON file of an index."""
    try:
        found: dict[str, Any] = json.loads(folder.read(name))
    except ValueError as exc:
        raise CorruptFileError(
            f"{folder.path(name)}, a file of an index, is damaged: {exc}. Restore it from a copy. If there is none, make "
            "the index again: write each output of a run with it once more, in the same order, with an index in another folder"
        ) from exc
    return found


def plain_setting(value: Any) -> Any:
    """Return a setting as JSON holds it: of a scheme, the fields that change signatures."""
    if not isinstance(value, Scheme):
        return value
    return {name: field for name, field in vars(value).items() if name not in ("name", "source")}


def _require_settings(folder: Folder, stored: dict[str, Any], given: dict[str, Any]) -> None:
    if stored["format"] > FORMAT:
        raise ParameterError(
            f"open_index: {folder.url!r} has format {stored['format']}, and this version of curator_df reads format {FORMAT}. "
            "Install a later version"
        )
    for name, value in given.items():
        if value is not None and value != stored[name]:
            raise ParameterError(
                f"open_index: {folder.url!r} was made with {name}={stored[name]!r}, and {name}={value!r} is requested. Leave out "
                f"{name}=, or use another folder"
            )


def keep_documents(block: Any, *, removals: Sequence[tuple[str, Sequence[str]]]) -> Outcome:
    """Keep the documents of an index to which no removal applies."""
    gone = np.zeros(len(block), dtype=np.bool_)
    for where, runs in removals:
        applies = block["run"].isin(list(runs)).to_numpy(dtype=np.bool_)
        if applies.any():
            gone |= applies & _holds(block, where)
    return Outcome(keep_rows(block, ~gone), {"removed": int(gone.sum())}) if gone.any() else Outcome(block)


def _holds(block: Any, where: str) -> npt.NDArray[np.bool_]:
    """Return for which documents an expression is true; null is not."""
    holds: npt.NDArray[np.bool_] = block[list(DOCUMENT_COLUMNS)].eval(where).to_numpy(dtype=np.bool_, na_value=False)
    return holds
