# SPDX-License-Identifier: Apache-2.0
"""Journal of a run, from which an interrupted run continues.

The folder ``_curator/`` in the output contains ``plan.json`` and ``ranges.npy`` (input, program and ranges, fixed at the first
start; no memory, workers or block size), ``done.jsonl`` (one line per finished range), ``times.json`` (of files that were
copied since) and ``receipt.json`` (written last: the run is complete). Object stores cannot append, so each batch of lines is a
separate object there. Only one run may write to a folder: see `files.owner`; if the file system supports locks, there is also a
lock that ends with its process.
"""

from __future__ import annotations

import dataclasses
import errno
import fcntl
import io
import json
import logging
import os
import time
import uuid
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np

from curator_df.core.cleaning_up import clean_up
from curator_df.core.ranges.manifest import TaskRecord
from curator_df.core.ranges.parameter_digests import WORKING_FILES, changes
from curator_df.core.ranges.sink import Sink
from curator_df.core.ranges.source import Ranges
from curator_df.errors import OutputChangedError, OutputExistsError, ResumeError
from curator_df.files.owner import OWNERS_FOLDER, Owner, is_taken, owner_of
from curator_df.files.storage import (
    JOURNAL_FOLDER,
    MANY_NAMES,
    QUARANTINE_FOLDER,
    TEMPORARY_FOLDER,
    FileRecord,
    FileState,
    Folder,
    disk_errors,
    moved_away,
    output_errors,
    sync_folder,
)
from curator_df.files.working_files import RESUMES_WITH_CLUSTER
from curator_df.memory.sizes import show_count

LOG = logging.getLogger("curator_df")
OnExisting = Literal["raise", "resume", "overwrite"]
SAVED_DOCUMENTS = ("croissant.jsonld", "README.md")
"""Files that users save into an output folder (`Receipt.save`). Readers of the output skip them, and runs leave them."""
PLAN = f"{JOURNAL_FOLDER}/plan.json"
TIMES_FILE = f"{JOURNAL_FOLDER}/times.json"
"""File with the modification times of files that were copied after they were written, and found to be the same."""
FORMAT = 5
SYNC_SECONDS = 1.0
"""Interval between two fsyncs of the lines in seconds. One per range took 255 s on a busy disk for 100,000 ranges."""


@dataclasses.dataclass(frozen=True)
class Identity:
    """Identity of a run: resume requires that all of it is unchanged."""

    input: str
    """Fingerprint of the input listing."""
    program: str
    """Fingerprint of the program."""
    sink: str
    """Fingerprint of the output's format."""
    steps: tuple[tuple[str, str], ...]
    """Name and fingerprint of each step, to report which one differs."""
    parameters: tuple[Mapping[str, Any], ...] = dataclasses.field(default=(), metadata={"identity": False})
    """Parameters of each step (`core.ranges.parameter_digests`), to report the differences."""
    output: Mapping[str, Any] = dataclasses.field(default_factory=dict, metadata={"identity": False})
    """Parameters of the output's format, to report the differences."""
    read: Mapping[str, Any] = dataclasses.field(default_factory=dict, metadata={"identity": False})
    """Parameters of the input, to report the differences."""


class Journal:
    """Journal of one output folder, locked by the process that runs it; or of a part of the work of a ``whole`` journal."""

    def __init__(self, folder: Folder, whole: Journal | None = None) -> None:
        self.folder = folder
        self._whole = whole
        self._lock: Any = None
        self._owner: Owner = Owner(folder) if whole is None else whole._owner
        self._lines: Any = None
        self._unwritten: list[bytes] = []
        self._synced, self._is_synced = 0.0, True
        self._written: set[str] | None = None
        """Folders of the parts that have content, if this process started the journal; None if they must be looked up."""

    def part(self, name: str) -> Journal:
        """Return the journal of a part of the work, in a subfolder; it has no owner and no lock of its own."""
        return Journal(self.folder.below(name), self._whole or self)

    def __enter__(self) -> Self:
        if self._whole is not None:
            return self
        with disk_errors(self.folder), output_errors(self.folder):
            is_locked = self.folder.is_local and self._take_lock()
            try:
                self._owner.claim(is_locked=is_locked)
            except BaseException as exc:
                clean_up(exc, self._close)
                raise
        return self

    def __exit__(self, kind: object, exc: BaseException | None, trace: object) -> None:
        releases = [self._owner.release] if self._whole is None else []
        clean_up(exc, *releases, self._close)

    def _take_lock(self) -> bool:
        """Lock the folder; return False if the file system does not support locks."""
        home = Path(self.folder.path(JOURNAL_FOLDER))
        home.mkdir(parents=True, exist_ok=True)
        self._lock = open(home / "lock", "w")  # noqa: SIM115
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as exc:
            if exc.errno in (errno.EWOULDBLOCK, errno.EACCES):
                self._close()
                raise is_taken(self.folder, owner_of(self.folder)) from exc
            return False  # NFS without lockd, Lustre without -o flock: the owner's file alone must suffice
        return True

    def _close(self) -> None:
        clean_up(None, *(file.close for file in (self._lines, self._lock) if file is not None))

    def _require_in_place(self) -> None:
        """Raise an error if the folder was renamed or deleted: workers would continue in a new one of its name."""
        if self._whole is not None:
            self._whole._require_in_place()
            return
        if self._lock is None:  # a store does not have folders
            return
        try:
            there = os.stat(self._lock.name)
            is_same = os.path.samestat(there, os.fstat(self._lock.fileno()))
        except OSError as exc:
            if exc.errno not in (errno.ENOENT, errno.ENOTDIR, errno.ESTALE):
                raise
            is_same = False
        if not is_same:
            raise moved_away(self.folder.url)

    def start(self, identity: Identity, ranges: Ranges) -> None:
        """Store the ranges of a new run."""
        buffer = io.BytesIO()
        np.save(buffer, ranges.table)
        self.folder.write(f"{JOURNAL_FOLDER}/ranges.npy", buffer.getvalue())
        plan = {"format": FORMAT, "run": uuid.uuid4().hex, **vars(identity)}
        # A line for each entry: with indent=, Python's own encoder writes it, which takes 0.2 s for 10,000 columns.
        lines = ",\n".join(f" {json.dumps(name)}: {json.dumps(value)}" for name, value in plan.items())
        self.folder.write(PLAN, f"{{\n{lines}\n}}\n".encode())
        self._written = set()

    @property
    def is_started(self) -> bool:
        """Whether there is a run to resume."""
        return self.folder.exists(PLAN)

    @property
    def plan(self) -> dict[str, Any] | None:
        """The plan of the run that was started; None if there is none."""
        return json.loads(self.folder.read(PLAN)) if self.is_started else None

    @property
    def ranges(self) -> Ranges | None:
        """The ranges of the run that was started; None if there is none."""
        return self._pinned() if self.is_started else None

    @property
    def run(self) -> dict[str, Any] | None:
        """Return the ``id`` of the run that was started (None if an early version started it); None if there is none."""
        if not self.is_started:
            return None
        return {"id": json.loads(self.folder.read(PLAN)).get("run")}

    @property
    def receipt(self) -> dict[str, Any] | None:
        """The receipt of a complete run."""
        name = f"{JOURNAL_FOLDER}/receipt.json"
        if self._is_blank:
            return None
        return json.loads(self.folder.read(name)) if self.folder.exists(name) else None

    def finish(self, receipt: dict[str, Any]) -> None:
        """Mark the run complete."""
        self._require_in_place()
        self._owner.check()
        self.sync()
        self._note_content()
        self.folder.write(f"{JOURNAL_FOLDER}/receipt.json", json.dumps(receipt, indent=1).encode())
        if self._whole is None:
            self.folder.delete_tree(TEMPORARY_FOLDER)

    @property
    def _is_blank(self) -> bool:
        """Whether this is a part of a new journal to which nothing was written: a store need not be asked."""
        written = None if self._whole is None else self._whole._written
        return written is not None and self.folder.url not in written

    def _note_content(self) -> None:
        if self._whole is not None and self._whole._written is not None:
            self._whole._written.add(self.folder.url)

    def resume(self, identity: Identity) -> Ranges:
        """Return the stored ranges, after a check that they belong to this input and program."""
        plan = json.loads(self.folder.read(PLAN))
        if changed := difference(plan, identity):
            resumes = f". {RESUMES_WITH_CLUSTER}" if WORKING_FILES in changed else ""
            raise ResumeError(
                f"cannot resume in {self.folder.url}: {changed}. Write to another folder, or start over with "
                f"on_existing='overwrite'{resumes}"
            )
        return self._pinned()

    def _pinned(self) -> Ranges:
        return Ranges(np.load(io.BytesIO(self.folder.read(f"{JOURNAL_FOLDER}/ranges.npy"))))

    def record(self, records: Sequence[TaskRecord]) -> None:
        """Record finished ranges.

        A killed process loses none of the records, except of a part in a store, where records of tasks that took less than
        `SYNC_SECONDS` are written together: it may lose the last of them. Records survive a crash of the machine after
        `SYNC_SECONDS`, and all of them do after `sync`. A range whose record is lost is processed again, and its files are
        replaced.
        """
        self._require_in_place()
        self._owner.check()
        self._note_content()
        content = b"".join(json.dumps(record.to_json()).encode() + b"\n" for record in records)
        if not self.folder.is_local:
            self._unwritten.append(content)
            self._is_synced = False
            took_seconds = max((record.seconds for record in records), default=0.0)
            if self._whole is None or max(time.monotonic() - self._synced, took_seconds) > SYNC_SECONDS:
                self.sync()
            return
        with disk_errors(self.folder):
            if self._lines is None:
                self._lines = _open_whole_lines(Path(self.folder.path(f"{JOURNAL_FOLDER}/done.jsonl")))
            self._is_synced = False
            self._lines.write(content)
            self._lines.flush()
        if time.monotonic() - self._synced > SYNC_SECONDS:
            self.sync()

    def sync(self) -> None:
        """Write all records to disk."""
        if self._unwritten:
            # A resumed run must not reuse the names of an earlier one, even in the same process. Sorted names are in time order.
            name = f"{JOURNAL_FOLDER}/done-{time.time_ns():020d}-{os.getpid()}.jsonl"
            self.folder.write(name, b"".join(self._unwritten))
            self._unwritten.clear()
        elif not self._is_synced:
            with disk_errors(self.folder):
                os.fsync(self._lines.fileno())
        self._synced, self._is_synced = time.monotonic(), True

    def done(self) -> Iterator[TaskRecord]:
        """Yield the records of the finished ranges, one by one; the last record of a range that was repeated is valid."""
        names = () if self._is_blank else self.folder.names()
        times = self._times() if TIMES_FILE in names else {}
        for name in names:
            if name.startswith(f"{JOURNAL_FOLDER}/done") and name.endswith(".jsonl"):
                for line in io.BytesIO(self.folder.read(name)):
                    # A crash of the machine can truncate a line or leave zeros in it; that range is processed again.
                    if line.endswith(b"\n") and b"\0" not in line:
                        record = TaskRecord.from_json(json.loads(line))
                        yield _with_times(record, times) if times else record

    def note_times(self, times: Iterable[tuple[bool, str, int, int]]) -> None:
        """Store later modification times of files: whether they are rejects, names, and times in ns as recorded and as found."""
        known = self._times() if self.folder.exists(TIMES_FILE) else {}
        first = {(other, name, now): was for (other, name, was), now in known.items()}  # a file may be copied twice
        for other, name, was, now in times:
            if was != now:
                known[other, name, first.get((other, name, was), was)] = now
        self.folder.write(TIMES_FILE, json.dumps([(*key, now) for key, now in known.items()]).encode())

    def _times(self) -> dict[tuple[bool, str, int], int]:
        return {(other, name, was): now for other, name, was, now in json.loads(self.folder.read(TIMES_FILE))}

    def records(self) -> dict[int, TaskRecord]:
        """Return the latest record of each finished range or task, by number."""
        return {done.number: done for done in self.done()}


def _with_times(record: TaskRecord, times: Mapping[tuple[bool, str, int], int]) -> TaskRecord:
    """Return a record with the modification times that its files have got since."""
    files, other_files = (
        tuple(
            dataclasses.replace(file, modified_ns=times.get((other, file.name, file.modified_ns), file.modified_ns))
            for file in noted
        )
        for other, noted in ((False, record.files), (True, record.other_files))
    )
    return dataclasses.replace(record, files=files, other_files=other_files)


def all_done(journal: Journal, count: int) -> list[TaskRecord] | None:
    """Return the records of ``count`` tasks in order; None unless the journal has all of them."""
    done = journal.records()
    return [done[number] for number in range(count)] if done.keys() >= set(range(count)) else None


def whole_ranges(journal: Journal, rejects: Folder | None = None) -> Iterator[TaskRecord]:
    """Yield the record of each finished range whose files still exist as they were written.

    Files may have been truncated, replaced or deleted since. Such a range is processed again, and its new record replaces the
    old one. Files with another modification time, as copies have, are read last and compared with their checksums; for those
    that match, the journal stores the new time.
    """
    states = {folder.url: folder.states() for folder in (journal.folder, rejects) if folder is not None}
    whole, touched = set(), set()
    for done in journal.done():
        found = _found_files(done, journal, rejects, states)
        if any(state is None or state.size_bytes != file.size_bytes for _, file, state in found):
            continue
        if all(state.is_untouched(file) for _, file, state in found if state):
            whole.add(done.number)
            yield done
        else:
            touched.add(done.number)
    touched -= whole  # those have an older record, whose files were written again
    if touched:
        yield from _whole_by_checksum(journal, rejects, states, touched)


def _whole_by_checksum(
    journal: Journal, rejects: Folder | None, states: Mapping[str, Mapping[str, FileState]], numbers: Collection[int]
) -> Iterator[TaskRecord]:
    """Yield the records of those ranges whose files have their checksums, and store the files' modification times."""
    LOG.warning(
        "%s: files of %s have another modification time than when they were written, as after a copy. Their contents are "
        "compared with their checksums, which reads all of these files once",
        journal.folder.url,
        show_count(len(numbers), "finished input split"),
    )
    times = []
    for done in journal.done():
        if done.number not in numbers:
            continue
        found = _found_files(done, journal, rejects, states)
        if all(folder.is_as_written(file, state) for folder, file, state in found):
            times += [
                (folder is rejects, file.name, file.modified_ns, state.modified_ns)
                for folder, file, state in found
                if state
            ]
            yield done
    journal.note_times(times)


def _found_files(
    done: TaskRecord, journal: Journal, rejects: Folder | None, states: Mapping[str, Mapping[str, FileState]]
) -> list[tuple[Folder, FileRecord, FileState | None]]:
    return [
        (folder, file, states[folder.url].get(file.name))
        for folder, file in _noted_files(done, journal.folder, rejects)
    ]


def _noted_files(done: TaskRecord, kept: Folder, rejects: Folder | None) -> Iterator[tuple[Folder, FileRecord]]:
    """Yield the recorded files of a finished range, with the folder of each; rejects only if their folder is known."""
    for file in done.files:
        yield kept, file
    for file in done.other_files:
        if file.name.startswith(f"{QUARANTINE_FOLDER}/"):
            yield kept, file
        elif rejects is not None:
            yield rejects, file


def check_output(journal: Journal, sink: Sink, on_existing: OnExisting) -> list[str]:
    """Return the files in the output folder, except lock, owners and documents; raise an error if they prevent a run.

    Nothing is deleted, so that a run into several folders changes none of them if one is refused.
    """
    folder = journal.folder
    guards = (f"{JOURNAL_FOLDER}/lock", f"{OWNERS_FOLDER}/")
    present = [name for name in folder.names() if not name.startswith(guards) and name not in SAVED_DOCUMENTS]
    if present and on_existing == "raise":
        state = "a complete run" if journal.receipt else "an interrupted run" if journal.is_started else "files"
        raise OutputExistsError(
            f"{folder.url} already contains {state} ({show_count(len(present), 'file')}). Continue with on_existing='resume', "
            "delete the files of the run with on_existing='overwrite', or use another folder"
        )
    ours = (f"{JOURNAL_FOLDER}/", f"{QUARANTINE_FOLDER}/")
    strange = [name for name in present if sink.owns(name) is None and not name.startswith(ours)]
    if strange and on_existing == "overwrite":
        raise OutputExistsError(
            f"on_existing='overwrite' deletes only files that a run of curator_df wrote, but {folder.url} contains "
            f"{show_count(len(strange), 'other file')} (the first is {strange[0]!r}). Delete them yourself, or use another "
            "folder"
        )
    return present


def open_run(
    journal: Journal, sink: Sink, identity: Identity, on_existing: OnExisting
) -> tuple[Ranges | None, dict[str, Any] | None]:
    """Decide between a new run, a resumed one and an error.

    Returns
    -------
    ranges : Ranges or None
        Stored ranges of the run to resume; None for a new one.
    receipt : dict or None
        Receipt of the run, if it is complete and all its files exist.
    """
    folder = journal.folder
    present = check_output(journal, sink, on_existing)
    if on_existing == "overwrite":
        folder.delete_all(present)
    if not present or on_existing == "overwrite":
        return None, None
    ranges, receipt = resumed_ranges(journal, identity, present), journal.receipt
    if ranges is None:
        return None, None
    if receipt is not None and len({done.number for done in whole_ranges(journal)}) < len(ranges):
        receipt = None
    return ranges, receipt


def resumed_ranges(journal: Journal, identity: Identity, present: Sequence[str]) -> Ranges | None:
    """Return the stored ranges of the run to resume in a folder with these files; None if none was begun. Nothing is written.

    Raises
    ------
    ResumeError
        If the files are of no run, or of another one.
    """
    folder = journal.folder
    if not journal.is_started:
        strange = [name for name in present if not name.startswith(f"{JOURNAL_FOLDER}/")]
        if strange:
            raise ResumeError(
                f"cannot resume in {folder.url}: it contains files (the first is {strange[0]!r}), but curator_df has not "
                "recorded a run in it. Use another folder"
            )
        return None
    return journal.resume(identity)


def delete_unfinished(folder: Folder, sink: Sink, done: np.ndarray[Any, Any]) -> None:
    """Delete files of ranges that are not in the journal: they will be written again, possibly under fewer names."""
    folder.delete_tree(TEMPORARY_FOLDER)
    numbers = ((name, sink.owns(name)) for name in folder.names())
    folder.delete_all([name for name, n in numbers if n is not None and not (n < len(done) and done[n])])
    end_uploads(folder, sink)


def settle_files(journal: Journal, ranges: int, sink: Sink, rejects: Sink | None = None) -> None:
    """Delete files that belong to no finished range, and check that those of all ranges are as they were written.

    The former are left by workers that died before they reported their files. Each folder is listed once.

    Raises
    ------
    OutputChangedError
        Files of finished ranges were deleted, moved or changed while the run was in progress.
    """
    known = {file.name for done in journal.done() for file in (*done.files, *done.other_files)}
    states = {}
    for one in filter(None, (sink, rejects)):
        states[one.folder.url] = one.folder.states()
        names = [name for name in states[one.folder.url] if name not in known and one.owns(name) is not None]
        one.folder.delete_all(names)
        end_uploads(one.folder, one)
    lost: dict[int, list[tuple[Folder, FileRecord]]] = {number: [] for number in range(ranges)}
    for done in journal.done():
        files = _noted_files(done, sink.folder, None if rejects is None else rejects.folder)
        gone = [
            (folder, file)
            for folder, file in files
            if not folder.is_as_written(file, states[folder.url].get(file.name))
        ]
        if not gone:
            lost.pop(done.number, None)
        elif done.number in lost:
            lost[done.number] = gone
    if sink.folder.is_local or len(lost) <= MANY_NAMES:  # a directory that NFS has cached may lack names
        lost = {
            number: gone
            for number, gone in lost.items()
            if not gone or not all(folder.is_as_written(file, folder.state(file.name)) for folder, file in gone)
        }
    if lost:
        missing = (folder.path(file.name) for gone in lost.values() for folder, file in gone[:1])
        path = next(missing, sink.folder.path(f"{JOURNAL_FOLDER}/done.jsonl"))
        raise OutputChangedError(
            f"{path!r} was written by this run, but is now missing, or has another size or content. Files of {len(lost):,} "
            f"of {ranges:,} finished input splits (parts of the input) were deleted, moved or changed during the run. To "
            "write them again, repeat the run with on_existing='resume'"
        )


def end_uploads(folder: Folder, sink: Sink) -> None:
    """Abort multipart uploads that killed processes have left.

    S3 keeps and charges for the parts until the upload is aborted, and does not list them as files; other stores delete them
    after some days.
    """
    if folder.is_local or not hasattr(folder.filesystem, "call_s3"):
        return
    bucket, key, _ = folder.filesystem.split_path(folder.root)
    prefix = f"{key}/" if key else ""
    try:
        for upload in _uploads(folder.filesystem.call_s3, bucket, prefix):
            name = upload["Key"].removeprefix(prefix)
            if name.startswith(f"{JOURNAL_FOLDER}/") or sink.owns(name) is not None:
                folder.filesystem.call_s3(
                    "abort_multipart_upload", Bucket=bucket, Key=upload["Key"], UploadId=upload["UploadId"]
                )
    except Exception as exc:  # noqa: BLE001 - no permission, or not supported by the server: no row depends on it
        LOG.info("cannot abort unfinished uploads in %s: %s", folder.url, exc)


def _uploads(call: Any, bucket: str, prefix: str) -> list[dict[str, str]]:
    """Return all unfinished multipart uploads below a prefix."""
    found: list[dict[str, str]] = []
    after: dict[str, str] = {}
    while True:
        page = call("list_multipart_uploads", Bucket=bucket, Prefix=prefix, **after)
        found += page.get("Uploads", ())
        if not page.get("IsTruncated"):
            return found
        after = {"KeyMarker": page["NextKeyMarker"], "UploadIdMarker": page["NextUploadIdMarker"]}


def difference(plan: dict[str, Any], identity: Identity) -> str:
    """Return how this run differs from a journal's plan, as text; empty if it does not."""
    if plan["format"] != FORMAT:
        return f"another version of curator_df started the run (format {plan['format']} of its records, not {FORMAT})"
    if plan["input"] != identity.input:
        # Journals of earlier versions lack parameters.
        known = changes(plan["read"], identity.read) if plan.get("read") else ""
        return known or "the input changed (other files, sizes, modification times or parameters of the reader)"
    if plan["program"] != identity.program:
        was, now = [tuple(step) for step in plan["steps"]], list(identity.steps)
        for number, pair in enumerate(zip(was, now, strict=False)):
            if pair[0] != pair[1]:
                return _step_difference(plan, identity, number, pair[0][0], pair[1][0])
        names = " -> ".join(name for name, _ in was) or "none", " -> ".join(name for name, _ in now) or "none"
        return f"the steps changed from {names[0]} to {names[1]}"
    if plan["sink"] == identity.sink:
        return ""
    return _output_difference(plan.get("output") or {}, identity.output)


def _output_difference(was: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    forms = [{"format": output["format"]} for output in (was, now) if "format" in output]
    if len(forms) == 2 and (known := changes(*forms)):
        return f"the output's {known}"
    options = [{name: value for name, value in output.items() if name != "format"} for output in (was, now)]
    known = changes(*options) if set(options[0]) == set(options[1]) else ""
    return f"the output option {known}" if known else "the output's format or its parameters changed"


def _step_difference(plan: Mapping[str, Any], identity: Identity, number: int, was: str, now: str) -> str:
    if was != now:
        return f"step {number + 1} changed from {was} to {now}"
    noted = plan.get("parameters", ())
    known = changes(noted[number], identity.parameters[number]) if number < len(noted) else ""
    return f"in step {number + 1} ({now}), {known or 'the function or a parameter changed'}"


def _open_whole_lines(path: Path) -> Any:
    """Open a file for appending, after truncating a line that a crash left unfinished."""
    is_new = not path.exists()
    path.parent.mkdir(parents=True, exist_ok=True)
    file = open(path, "a+b")  # noqa: SIM115
    if is_new:
        sync_folder(path.parent)
    file.seek(0)
    content_end = 0
    for line in file:
        if line.endswith(b"\n"):
            content_end += len(line)
    file.truncate(content_end)
    return file
