# SPDX-License-Identifier: Apache-2.0
"""Publish the output of finished runs as a dataset of the Hugging Face hub: `push_to_hub`.

No task writes to the hub: there, each file would be a commit, and a reader would see a part of an output. Finished files
are sent first, and become visible together in a commit at the end. See also `io.output.hub_output`.
"""

from __future__ import annotations

import hashlib
import itertools
import math
import os
import posixpath
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from curator_df.arguments import choose
from curator_df.core.fingerprint import fingerprint
from curator_df.core.planning.plan import Plan
from curator_df.core.ranges.journal import Journal, OnExisting
from curator_df.core.runner.explaining import is_explaining, stop_if_explaining
from curator_df.core.runner.progress import with_progress_lines
from curator_df.core.runner.session import current_session
from curator_df.errors import InputError, OutputChangedError, OutputExistsError, ParameterError
from curator_df.extras import require_package
from curator_df.files.hub import PROTOCOL, client_options, hub_errors
from curator_df.files.retry import retry_transient
from curator_df.files.storage import FileRecord, Folder
from curator_df.io.output.formats import folder_at
from curator_df.io.output.receipts import read_receipt
from curator_df.memory.sizes import show_count, show_size
from curator_df.receipts.dataset_card import CardSplit, dataset_card
from curator_df.receipts.receipt import Receipt

Path = str | os.PathLike[str]
OPERATOR = "push_to_hub"
DATA = "data"
"""Folder of the files in the repository."""
CARD = "README.md"
READ_BYTES = 1 << 20
FILES_AT_A_TIME = 50
"""Number of files that are sent before the next are looked at."""
MOST_FILES = 1_000
"""Maximum number of files of a commit: the hub takes long for large ones, and gives up after a minute."""
PLAIN_BYTES = 64_000_000
"""Maximum bytes of a commit in files that the hub may store in git: these are sent in the request of the commit, from memory."""
MOST_PLAIN_BYTES = 11_000_000
"""Size from which the hub stores every file outside git, with a margin."""
SUFFIXES = (".parquet", ".jsonl", ".jsonl.gz", ".jsonl.zst")
PACKED_SUFFIXES = (".parquet", ".gz", ".zst")
"""Endings of files that the hub stores outside git, whatever their size."""
_SPLIT = re.compile(r"\w+(\.\w+)*")
T = TypeVar("T")


@dataclass(frozen=True)
class _Upload:
    """File of an output, and its name in the repository."""

    path: str
    name: str
    size_bytes: int
    other_name: str
    """Name where another file has that name and must stay until all files are sent: it ends in a digest of the output."""

    @property
    def plain_bytes(self) -> int:
        """Bytes that may be held in memory for the commit."""
        is_stored = self.name.endswith(PACKED_SUFFIXES) or self.size_bytes >= MOST_PLAIN_BYTES
        return 0 if is_stored else self.size_bytes


@dataclass(frozen=True)
class _Stored:
    """File in the repository."""

    size_bytes: int
    digest: str
    """SHA-256 of a file that is stored outside git; else the name of its git object, a SHA-1."""

    def holds(self, file: _Upload) -> bool:
        """Return whether it has the content of a file on disk, which is read only if the sizes are equal."""
        if self.size_bytes != file.size_bytes:
            return False
        digest = hashlib.sha256() if len(self.digest) == 64 else hashlib.sha1(b"blob %d\0" % file.size_bytes)  # noqa: S324
        with open(file.path, "rb") as content:
            while piece := content.read(READ_BYTES):
                digest.update(piece)
        return digest.hexdigest() == self.digest


@dataclass(frozen=True)
class _Output:
    """Output that becomes a split."""

    split: str
    receipt: Receipt
    files: tuple[_Upload, ...]
    patterns: Mapping[str, str]


def push_to_hub(
    folder: str | os.PathLike[str] | Mapping[str, Path],
    repo: str,
    *,
    create: bool = False,
    private: bool | None = None,
    revision: str | None = None,
    license: str | None = None,  # noqa: A002 - the field of a dataset card
    card: bool = True,
    on_existing: OnExisting = "resume",
    storage_options: dict[str, Any] | None = None,
) -> str:
    """Publish the output of a run as a dataset on the Hugging Face hub, with a dataset card made from its receipt.

    Parameters
    ----------
    folder : str or path, or mapping of str to str or path
        Local folder that `write_parquet` or `write_jsonl` wrote, which becomes the split ``train``; or splits by name, such as
        ``{"train": "out/train", "validation": "out/validation"}``.
    repo : str
        Name of the dataset, ``"organization/name"``.
    create : bool, default False
        Create the dataset (and the branch) if it does not exist.
    private : bool, optional
        With ``create``: whether a new dataset is private. By default as the organization has it.
    revision : str, optional
        Branch that is written; by default ``main``.
    license : str, optional
        License for the dataset card, such as ``"odc-by"``. By default the card keeps its license.
    card : bool, default True
        Write ``README.md``: rows, funnel, reasons of dropped rows, recipe and versions, and where the files of each split
        are. The text and the fields of an existing card are kept, except for the sections of these splits.
    on_existing : {"resume", "raise", "overwrite"}
        What to do if the dataset has files of these splits: continue an interrupted upload of the same files, and raise an
        error for others; raise an error for any; or replace them.
    storage_options : dict, optional
        ``token`` and ``endpoint`` of the hub. By default the token of ``HF_TOKEN`` or of ``hf auth login``.

    Returns
    -------
    str
        Address of the dataset at the new commit, for readers: ``hf://datasets/organization/name@commit``.

    Raises
    ------
    MissingExtraError
        If the package huggingface_hub is not installed.
    InputError
        If no run was completed in a folder; or the dataset does not exist, or this token may not see it.
    OutputExistsError
        If the dataset has other files of these splits.
    OutputChangedError
        If files of the output were changed or deleted after its run.
    RemoteFileError
        If the hub refuses the token, or cannot be reached.
    ParameterError
        If a folder is not local, its files are neither Parquet nor JSON Lines, or a name is invalid.

    See Also
    --------
    write_parquet, read_receipt

    Notes
    -----
    Rows: all. Columns: all. Peak extra memory: none; files are sent from disk. Computes: no.

    Files are sent first, and become visible together in a commit (one for each 1,000 files) with the card. A call that was
    killed is repeated: files that the hub already has are not sent again. Busy answers and lost connections are retried.

    The card has the paths that the recipe of the run has, as they were given to the reader and the writer; leave it out with
    ``card=False``. Files are named ``data/train-00000-of-00007.parquet``, as ``datasets.load_dataset`` expects them. Each
    folder of ``partition_on`` becomes a configuration of its own, because the column is not in the files.

    Examples
    --------
    >>> receipt = cdf.write_parquet(docs, "corpus/", cdc=True)  # doctest: +SKIP
    >>> cdf.push_to_hub("corpus/", "org/corpus", create=True, license="odc-by")  # doctest: +SKIP
    'hf://datasets/org/corpus@0123456789012345678901234567890123456789'
    """
    choose(OPERATOR, "on_existing", on_existing, OnExisting)
    require_package(OPERATOR, "huggingface_hub", "hub")
    if not isinstance(repo, str) or not re.fullmatch(r"[\w.-]+/[\w.-]+", repo):
        raise ParameterError(f"{OPERATOR}: repo={repo!r} must be the name of a dataset, such as 'organization/name'")
    outputs = _outputs(folder)
    options = dict(storage_options or {})
    hub = _Repository(repo, revision or "main", options)
    with hub_errors(f"{PROTOCOL}datasets/{repo}"):
        if create and not is_explaining():
            hub.create(private=private)
        commit, there = _known_files(hub) if create and is_explaining() else hub.files()
        files = [file for output in outputs for file in output.files]
        new, changed, stale = _compared(outputs, there, on_existing, f"{repo!r} at {hub.revision!r}")
        _stop_if_explaining(outputs, [*new, *changed], hub.url)
        text = _card(hub, commit, outputs, license) if card else None
        said = f"Upload {sum(output.receipt.rows_written for output in outputs):,} rows in {len(files):,} files with curator_df"
        return f"{hub.url}@{hub.publish(list(_commits(new, changed)), stale, text, said)}"


def _known_files(hub: _Repository) -> tuple[str, dict[str, _Stored]]:
    """Return the files of a dataset that may have yet to be created."""
    try:
        return hub.files()
    except InputError:
        return "", {}


def _stop_if_explaining(outputs: Sequence[_Output], new: Sequence[_Upload], url: str) -> None:
    """Stop with the plan of an upload if only that is requested: no rows are read."""
    if not is_explaining():
        return
    layout = current_session().layout
    sizes = [file.size_bytes for output in outputs for file in output.files]
    said = f"{show_count(len(new), 'file')} of {show_size(sum(file.size_bytes for file in new))} to {url}"
    plan = Plan(layout, (), sum(sizes), len(sizes), layout.reserved_bytes, remarks=(("sends", said),))
    stop_if_explaining(plan, [])


def prepare_dataset(repo: str, revision: str, options: Mapping[str, Any]) -> None:
    """Create a private dataset (and branch) unless it exists, and check that this token may read it."""
    hub = _Repository(repo, revision, options)
    with hub_errors(hub.url):
        hub.create(private=True)
        hub.files()


def published_files(repo: str, revision: str, splits: Collection[str], options: Mapping[str, Any]) -> dict[str, str]:
    """Return the digests of a dataset's files of these splits, by name; none where this token sees no such dataset or branch."""
    hub = _Repository(repo, revision, options)
    with hub_errors(hub.url):
        there = _known_files(hub)[1]
    return {name: there[name].digest for name in _of_splits(there, splits)}


def _outputs(folder: Path | Mapping[str, Path]) -> list[_Output]:
    """Return the outputs to publish, each a split."""
    folders = folder if isinstance(folder, Mapping) else {"train": folder}
    if not folders:
        raise ParameterError(f"{OPERATOR}: folder has no splits. Name at least one, such as {{'train': 'out/train'}}")
    for split in folders:
        if not isinstance(split, str) or not _SPLIT.fullmatch(split):
            raise ParameterError(
                f"{OPERATOR}: {split!r} cannot name a split. Use letters, digits and '_', such as 'train' or 'validation'"
            )
    return [_output(split, folder_at(path, {})) for split, path in folders.items()]


def _output(split: str, folder: Folder) -> _Output:
    if not folder.is_local:
        raise ParameterError(f"{OPERATOR}: {folder.url} is not a local folder. Copy the output to a local disk first")
    receipt = read_receipt(folder.url)
    records = [file for _, done in sorted(Journal(folder).records().items()) for file in done.files]
    records = records or [FileRecord(name, 0, size, 0) for name, size in folder.sizes().items() if name[:1] != "_"]
    if not records:
        raise ParameterError(
            f"{OPERATOR}: {folder.url} has no files, because its run wrote {receipt.rows_written:,} rows. Leave this split out, "
            "or repeat the run with a filter that keeps rows"
        )
    suffix = next((each for each in reversed(SUFFIXES) if all(file.name.endswith(each) for file in records)), None)
    if suffix is None:
        raise ParameterError(
            f"{OPERATOR}: {folder.url} has other files than Parquet or JSON Lines. Publish an output of write_parquet or "
            "write_jsonl"
        )
    states = folder.states_of([file.name for file in records])
    for file in records:
        state = states.get(file.name)
        if not folder.is_as_written(file, state):
            what = "has other content"
            if state is None or state.size_bytes != file.size_bytes:
                what = "is missing" if state is None else f"has {state.size_bytes:,} bytes, not {file.size_bytes:,}"
            raise OutputChangedError(
                f"{folder.path(file.name)} {what}: it was changed after its run. Repeat the run with on_existing='overwrite'"
            )
    return _Output(split, receipt, *_named(split, folder, records, suffix))


def _named(
    split: str, folder: Folder, records: Sequence[FileRecord], suffix: str
) -> tuple[tuple[_Upload, ...], dict[str, str]]:
    """Return the files with their names in the repository, and the pattern of each configuration."""
    uploads, patterns = [], {}
    mark = fingerprint([(file.name, file.size_bytes, file.checksum) for file in records])[:8]
    places = itertools.groupby(
        sorted(records, key=lambda file: posixpath.split(file.name)), lambda f: posixpath.dirname(f.name)
    )
    for place, files in ((place, list(files)) for place, files in places):
        home = f"{DATA}/{place}" if place else DATA
        patterns[place.replace("/", ",") or "default"] = f"{home}/{split}-*"
        for number, file in enumerate(files):
            name = f"{home}/{split}-{number:05d}-of-{len(files):05d}"
            uploads.append(
                _Upload(folder.path(file.name), f"{name}{suffix}", file.size_bytes, f"{name}-{mark}{suffix}")
            )
    return tuple(uploads), patterns


@with_progress_lines("comparing the files with those of the dataset")
def _compared(
    outputs: Sequence[_Output], there: Mapping[str, _Stored], on_existing: OnExisting, where: str
) -> tuple[list[_Upload], list[_Upload], list[str]]:
    """Return the files to publish that replace none, those that replace another, and the names of files to delete.

    Readers must see all rows of the earlier output until those of the new one are complete. So files that replace another are in
    the last commit; where these are too many for it, all files of this output get names of their own.
    """
    files = [file for output in outputs for file in output.files]
    splits = {output.split for output in outputs}
    changed = _changed(files, there)
    too_many = len(changed) > MOST_FILES or sum(file.plain_bytes for file in changed) > PLAIN_BYTES
    if (too_many and on_existing == "overwrite") or any(file.other_name in there for file in files):
        files = [replace(file, name=file.other_name) for file in files]
        changed = _changed(files, there)
    same = {file.name for file in files if file not in changed}
    ours = {file.name for file in files}
    found = _of_splits(there, splits)
    other = [name for name in found if name not in same or on_existing == "raise"]
    if other and on_existing != "overwrite":
        raise OutputExistsError(
            f"the dataset {where} has {show_count(len(other), 'file')} of another output in the splits "
            f"{', '.join(sorted(splits))}, such as {other[0]!r}. Replace them with on_existing='overwrite', or use another "
            "dataset or revision="
        )
    return [file for file in files if file not in changed], changed, [name for name in found if name not in ours]


def _changed(files: Sequence[_Upload], there: Mapping[str, _Stored]) -> list[_Upload]:
    """Return the files for which the repository has another one of that name."""
    return [file for file in files if file.name in there and not there[file.name].holds(file)]


def _of_splits(there: Iterable[str], splits: Collection[str]) -> list[str]:
    """Return the names of the files of these splits."""
    parted = ((name, posixpath.basename(name).partition("-")) for name in there)
    return [name for name, (split, dash, _) in parted if dash and split in splits]


def _card(hub: _Repository, commit: str, outputs: Sequence[_Output], license: str | None) -> str:  # noqa: A002
    splits = [CardSplit(output.split, output.receipt, output.patterns) for output in outputs]
    return dataset_card(hub.repo, splits, license=license, existing=hub.read(CARD, commit))


class _Repository:
    """Dataset on the hub, through its own client; requests are retried while errors are transient."""

    def __init__(self, repo: str, revision: str, options: Mapping[str, Any]) -> None:
        from huggingface_hub import HfApi

        self.repo, self.revision, self._options = repo, revision, options
        self._api = HfApi(**client_options(options), library_name="curator_df")
        self._where: dict[str, Any] = {"repo_id": repo, "repo_type": "dataset"}

    @property
    def url(self) -> str:
        """Address of the dataset."""
        return f"{PROTOCOL}datasets/{self.repo}"

    def create(self, *, private: bool | None) -> None:
        """Create the dataset and the branch, unless they exist."""
        self._try("create", lambda: self._api.create_repo(**self._where, private=private, exist_ok=True))
        if self.revision != "main":
            self._try("create", lambda: self._api.create_branch(**self._where, branch=self.revision, exist_ok=True))

    def files(self) -> tuple[str, dict[str, _Stored]]:
        """Return the commit of the branch, and the data files in it."""
        from huggingface_hub.errors import EntryNotFoundError, RepositoryNotFoundError, RevisionNotFoundError

        try:
            commit = str(self._try("look up", lambda: self._api.repo_info(**self._where, revision=self.revision)).sha)
        except RepositoryNotFoundError as exc:
            raise InputError(
                f"{self.url} does not exist, or this token may not see it. Create it with create=True, or log in with "
                "`hf auth login`, or set HF_TOKEN"
            ) from exc

        except RevisionNotFoundError as exc:
            raise InputError(f"{self.url} has no branch {self.revision!r}. Create it with create=True") from exc

        def listed() -> dict[str, _Stored]:
            tree: Iterable[Any] = self._api.list_repo_tree(
                **self._where, path_in_repo=DATA, recursive=True, revision=commit
            )
            return {
                entry.path: _Stored(int(entry.size), entry.blob_id if entry.lfs is None else entry.lfs.sha256)
                for entry in tree
                if hasattr(entry, "blob_id")
            }

        try:
            return commit, self._try("list", listed)
        except EntryNotFoundError:
            return commit, {}

    def read(self, name: str, commit: str) -> str | None:
        """Return the text of a file in a commit; None if it does not exist."""
        folder = Folder(f"{self.url}@{commit}", self._options)
        return folder.read(name).decode("utf-8", "replace") if folder.exists(name) else None

    @with_progress_lines("sending the files to the dataset")
    def publish(self, batches: Sequence[Sequence[_Upload]], stale: Sequence[str], card: str | None, said: str) -> str:
        """Send the files of each commit, then make them visible; return the last commit."""
        for number, batch in enumerate(batches, 1):
            message = said if len(batches) == 1 else f"{said} ({number} of {len(batches)})"
            is_last = number == len(batches)
            commit = self._publish(batch, stale if is_last else (), card if is_last else None, message)
        return commit

    def _publish(self, files: Sequence[_Upload], stale: Sequence[str], card: str | None, message: str) -> str:
        """Send files, and make them visible with a card and without those that are stale; return the commit."""
        from huggingface_hub import CommitOperationAdd, CommitOperationDelete

        def added() -> list[Any]:
            return [CommitOperationAdd(file.name, file.path) for file in files]

        sent = [added()]
        for start in range(0, len(files), FILES_AT_A_TIME):
            self._send(sent[0][start : start + FILES_AT_A_TIME])

        def commit() -> str:
            # After a lost answer, new operations ask the hub which files it has: all of them, if the commit was made.
            operations = sent.pop() if sent else added()
            operations += [] if card is None else [CommitOperationAdd(CARD, card.encode())]
            operations += [CommitOperationDelete(name) for name in self._still_there(stale)]
            made = self._api.create_commit(
                **self._where, operations=operations, commit_message=message, revision=self.revision
            )
            return str(made.oid)

        return self._try("commit to", commit)

    def _send(self, operations: Sequence[Any]) -> None:
        """Send the content of files that the hub does not have."""
        self._try(
            "upload to",
            lambda: self._api.preupload_lfs_files(
                **self._where, additions=operations, revision=self.revision, free_memory=False
            ),
        )

    def _still_there(self, names: Sequence[str]) -> list[str]:
        """Return the names that the branch still has: a commit whose answer was lost may have deleted them."""
        there = self.files()[1] if names else {}
        return [name for name in names if name in there]

    def _try(self, verb: str, call: Callable[[], T]) -> T:
        # A batch may take hours: only the number of attempts is limited.
        return retry_transient(f"{verb} {self.url!r}", call, total_seconds=math.inf)


def _commits(new: Sequence[_Upload], changed: Sequence[_Upload]) -> Iterator[list[_Upload]]:
    """Yield the files of each commit; those that replace another come last."""
    batch: list[_Upload] = []
    plain_bytes = 0
    room = MOST_FILES - len(changed), PLAIN_BYTES - sum(file.plain_bytes for file in changed)
    for file in new:
        if batch and (len(batch) >= MOST_FILES or plain_bytes + file.plain_bytes > PLAIN_BYTES):
            yield batch
            batch, plain_bytes = [], 0
        batch.append(file)
        plain_bytes += file.plain_bytes
    if batch and changed and (len(batch) > room[0] or plain_bytes > room[1]):
        yield batch
        batch = []
    yield [*batch, *changed]
