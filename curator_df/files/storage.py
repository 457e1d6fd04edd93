# SPDX-License-Identifier: Apache-2.0
"""`Folder`, to which runs write files: local (temporary name, fsync, rename) or an fsspec URL (an object appears when closed).

A file appears under its final name only when it is complete. Its checksum is computed from the bytes while they are written.
"""

from __future__ import annotations

import errno
import logging
import os
import shutil
import uuid
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import fsspec
from fsspec.spec import AbstractBufferedFile

from curator_df.arguments import absolute
from curator_df.errors import (
    CuratorError,
    DiskFullError,
    InputError,
    MissingExtraError,
    OutputChangedError,
    OutputExistsError,
    ParameterError,
    RemoteFileError,
    without_frames,
)
from curator_df.extras import pip_install
from curator_df.files.retry import retry_transient
from curator_df.files.write_only import WriteOnly
from curator_df.memory.sizes import show_size

JOURNAL_FOLDER = "_curator"
"""Folder for the journal and temporary files; readers skip names that begin with an underscore."""
QUARANTINE_FOLDER = "_quarantine"
"""Folder of an output for quarantined rows; readers skip it, too."""

TEMPORARY_FOLDER = f"{JOURNAL_FOLDER}/unfinished"
"""Folder for files that are being written."""
LOG = logging.getLogger("curator_df")

STALE_LOOKS = 3
"""Number of attempts to access a stale local file before it counts as deleted."""
MOST_DELETED = 1000
"""Maximum number of files that S3 deletes in one request."""
MANY_NAMES = 20
"""Number of files up to which a store is queried file by file; for more, it is listed, with a thousand names per answer."""
PART_BYTES = 5 << 20
"""Size of the parts of an upload in bytes: the minimum of S3; s3fs alone would buffer 50 MB."""
_UNUSABLE = (NotADirectoryError, FileExistsError, FileNotFoundError, PermissionError)

T = TypeVar("T")


OBJECT_STORES = frozenset({"s3", "s3a", "gs", "gcs", "abfs", "abfss", "az", "adl", "oss"})
"""Protocols of stores that have no folders: nothing must be created before a file is written."""
_written_to: set[tuple[str, str]] = set()
"""Connections to object stores, and buckets, that this process has already written to, so that they exist."""
_PACKAGES = {
    **dict.fromkeys(("s3", "s3a"), "s3fs"),
    **dict.fromkeys(("gs", "gcs"), "gcsfs"),
    **dict.fromkeys(("abfs", "abfss", "az", "adl"), "adlfs"),
    **dict.fromkeys(("http", "https"), "requests aiohttp"),
    **dict.fromkeys(("sftp", "ssh"), "paramiko"),
    "hf": "huggingface_hub",
    "smb": "smbprotocol",
    "oss": "ossfs",
    "webhdfs": "requests",
}
"""Packages that a protocol needs, as pip names them."""


def file_system(url: str, options: Mapping[str, Any]) -> tuple[Any, str]:
    """Return the file system of a URL, and the path in it.

    Raises
    ------
    MissingExtraError
        If a package that the protocol needs is not installed.
    ParameterError
        If the protocol is unknown, or an option is wrong.
    RemoteFileError
        If the file system cannot be reached.
    """
    try:
        return fsspec.core.url_to_fs(url, **options)  # type: ignore[no-any-return]
    except ImportError as exc:
        package = _PACKAGES.get(url.partition("://")[0])
        way_out = f" Install it with: {pip_install()} {package}" if package else ""
        raise MissingExtraError(f"{url!r} needs a package that is not installed ({exc}).{way_out}") from without_frames(
            exc
        )
    except (TypeError, ValueError) as exc:
        raise ParameterError(f"{url!r} cannot be used: {exc}. Check the URL and storage_options=") from without_frames(
            exc
        )
    except OSError as exc:
        said = str(exc).partition("\n")[0]
        raise RemoteFileError(
            f"{url!r} cannot be opened: {said}. Check the address, the network, and the credentials and packages that this "
            "kind of URL needs"
        ) from without_frames(exc)


@dataclass(frozen=True)
class FileRecord:
    """Record of a file that was written completely."""

    name: str
    """Path relative to the output folder."""
    rows: int
    """Number of rows in it."""
    size_bytes: int
    """Size on disk in bytes."""
    checksum: int
    """CRC-32 of its content."""
    modified_ns: int = field(default=0, compare=False)
    """Modification time of a local file in ns; 0 if it is not known, as in a store."""


class FileState(NamedTuple):
    """State of a file in a folder."""

    size_bytes: int
    """Size in bytes."""
    modified_ns: int = 0
    """Modification time of a local file in ns; 0 in a store."""

    def is_untouched(self, file: FileRecord) -> bool:
        """Return whether a file has its recorded modification time, if both are known. A copied or restored file has another."""
        return 0 in (file.modified_ns, self.modified_ns) or self.modified_ns == file.modified_ns


@dataclass(frozen=True)
class Folder:
    """Folder to write to, given by a path or an fsspec URL."""

    url: str
    """Absolute path or URL, without a trailing slash. Relative paths are made absolute for workers in other directories."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Storage options for fsspec."""
    is_durable: bool = True
    """Whether a file is written to disk (fsync) before it becomes visible. Off for files that `stages.mended` can write again
    if a crash of the machine damaged them.
    """

    def __post_init__(self) -> None:
        """Resolve a relative path in the process that received it."""
        if "://" not in self.url and "::" not in self.url:
            object.__setattr__(self, "url", absolute(os.path.expanduser(self.url)))

    def below(self, name: str) -> Folder:
        """Return a subfolder."""
        return replace(self, url=f"{self.url}/{name}")

    @cached_property
    def _filesystem(self) -> tuple[Any, str]:
        return file_system(self.url, self.options)

    @property
    def is_local(self) -> bool:
        """True for a path on a file system of this machine."""
        return "file" in _protocols(self._filesystem[0])

    @property
    def is_object_store(self) -> bool:
        """True for a store of objects in buckets, which has no folders."""
        return not OBJECT_STORES.isdisjoint(_protocols(self._filesystem[0]))

    @property
    def filesystem(self) -> Any:
        """The fsspec file system of the folder."""
        return self._filesystem[0]

    @property
    def root(self) -> str:
        """Path of the folder on its file system."""
        return self._filesystem[1]

    @property
    def remote_url(self) -> str:
        """URL of a remote folder as its file system writes it, the same for all aliases of a protocol."""
        filesystem, root = self._filesystem
        return str(filesystem.unstrip_protocol(root.rstrip("/")))

    def path(self, name: str) -> str:
        """Return the path of a file below the folder."""
        return f"{self.root}/{name}"

    def names(self) -> list[str]:
        """Return the sorted paths of all files below the folder, relative to it."""
        if self.is_local:
            found = (Path(top) / name for top, _, files in os.walk(self.root) for name in files)
            return sorted(str(path.relative_to(self.root)) for path in found)
        return sorted(self._found())

    def states(self) -> dict[str, FileState]:
        """Return the states of all files below the folder, by relative path."""
        if self.is_local:
            states = ((name, self.state(name)) for name in self.names())
            # A task of a killed run may still rename or delete its files.
            return {name: state for name, state in states if state is not None}
        return {name: FileState(int(entry["size"])) for name, entry in self._found().items()}

    def sizes(self) -> dict[str, int]:
        """Return the sizes in bytes of all files below the folder, by relative path."""
        return {name: state.size_bytes for name, state in self.states().items()}

    def read(self, name: str) -> bytes:
        """Return the content of a file."""
        filesystem, _ = self._filesystem
        return self._patiently("read", name, lambda: bytes(filesystem.cat_file(self.path(name))))

    def exists(self, name: str) -> bool:
        """Return whether a file exists."""
        return self.info(name) is not None

    def info(self, name: str) -> dict[str, Any] | None:
        """Return the file system's information about a file; None if it does not exist."""
        # fsspec's own `exists` returns False on some file systems when the request failed.
        filesystem, _ = self._filesystem

        def look_up() -> dict[str, Any]:
            filesystem.invalidate_cache()  # other processes may have written or deleted it
            found: dict[str, Any] = filesystem.info(self.path(name))
            return found

        try:
            return self._patiently("look up", name, look_up)
        except (FileNotFoundError, NotADirectoryError):
            return None

    def size(self, name: str) -> int | None:
        """Return the size of a file in bytes; None if it does not exist."""
        info = self.info(name)
        return None if info is None else int(info["size"])

    def state(self, name: str) -> FileState | None:
        """Return the state of a file; None if it does not exist."""
        if not self.is_local:
            size_bytes = self.size(name)
            return None if size_bytes is None else FileState(size_bytes)
        try:
            found = self._patiently("look up", name, lambda: os.stat(self.path(name)))
        except (FileNotFoundError, NotADirectoryError):
            return None
        return FileState(found.st_size, found.st_mtime_ns)

    def is_as_written(self, file: FileRecord, state: FileState | None) -> bool:
        """Return whether a file in this state has the recorded size and, if a local file was modified since, the checksum."""
        if state is None or state.size_bytes != file.size_bytes:
            return False
        return state.is_untouched(file) or self._has_checksum(file)

    def has_content(self, file: FileRecord) -> bool:
        """Return whether a file has the recorded size and, if it is local, the recorded checksum, whenever it was modified."""
        size_bytes = self.size(file.name)
        return size_bytes == file.size_bytes and (not self.is_local or self._has_checksum(file))

    def _has_checksum(self, file: FileRecord) -> bool:
        checksum = 0
        try:
            with open(self.path(file.name), "rb") as content:
                while piece := content.read(1 << 20):
                    checksum = zlib.crc32(piece, checksum)
        except FileNotFoundError:
            return False
        return checksum == file.checksum

    def states_of(self, names: Sequence[str]) -> dict[str, FileState]:
        """Return the states of those files that exist. A store is listed if there are many: single requests are slow."""
        if not self.is_local and len(names) > MANY_NAMES:
            return self.states()
        return {name: state for name in names if (state := self.state(name)) is not None}

    def changed(self, files: Sequence[FileRecord]) -> list[FileRecord]:
        """Return those files that do not exist as they were written."""
        states = self.states_of([file.name for file in files])
        return [file for file in files if not self.is_as_written(file, states.get(file.name))]

    def holds(self, files: Sequence[FileRecord]) -> bool:
        """Return whether all files exist as they were written."""
        return not self.changed(files)

    def delete(self, name: str) -> None:
        """Delete a file."""
        self._patiently("delete", name, lambda: self._filesystem[0].rm_file(self.path(name)))

    def delete_all(self, names: Sequence[str]) -> None:
        """Delete files, some of which may no longer exist; on S3, up to a thousand in one request."""
        for start in range(0, len(names), MOST_DELETED):
            for name in self._delete_together(names[start : start + MOST_DELETED]):
                with suppress(FileNotFoundError):
                    self.delete(name)

    def _delete_together(self, names: Sequence[str]) -> Sequence[str]:
        """Delete files in one request if S3 stores them; return those that were not deleted."""
        filesystem = self._filesystem[0]
        if self.is_local or not hasattr(filesystem, "call_s3"):
            return names
        keys = {filesystem.split_path(self.path(name))[1]: name for name in names}
        request = {
            "Bucket": filesystem.split_path(self.root)[0],
            "Delete": {"Objects": [{"Key": key} for key in keys], "Quiet": True},
        }
        answer = self._patiently(
            "delete", f"{len(names):,} files", lambda: filesystem.call_s3("delete_objects", **request)
        )
        return [keys[error["Key"]] for error in answer.get("Errors", ())]

    def write(self, name: str, content: bytes) -> None:
        """Write a small file completely and durably."""
        folder = replace(self, is_durable=True)

        def write() -> None:
            with folder.create(name) as file:
                file.write(content)
                file.commit()

        with disk_errors(self):
            self._patiently("write", name, write)

    def delete_tree(self, name: str) -> None:
        """Delete a subfolder and its content; do nothing if it does not exist."""
        if self.is_local:
            shutil.rmtree(self.path(name), ignore_errors=True)
        elif self.exists(name):
            self._patiently("delete", name, lambda: self._filesystem[0].rm(self.path(name), recursive=True))

    def free_bytes(self) -> int | None:
        """Return the free space of a local file system, None for others."""
        if not self.is_local:
            return None
        folder = Path(self.root)
        while not folder.exists():
            folder = folder.parent
        return shutil.disk_usage(folder).free

    def _found(self) -> dict[str, dict[str, Any]]:
        """Return a remote file system's information about each file below the folder, by relative path."""
        filesystem, root = self._filesystem

        def find() -> dict[str, dict[str, Any]]:
            filesystem.invalidate_cache()
            found: dict[str, dict[str, Any]] = filesystem.find(root, detail=True)
            return found

        found = self._patiently("list", "", find)
        return {path[len(root) :].lstrip("/"): entry for path, entry in found.items()}

    def _patiently(self, verb: str, name: str, call: Callable[[], T]) -> T:
        """Make a call, and repeat it while the errors of a file system that is not local are transient.

        NFS reports a file as stale that another machine has replaced or deleted: the next attempt finds the current file.
        """
        if not self.is_local:
            return retry_transient(f"{verb} {f'{self.url}/{name}'.rstrip('/')!r}", call)
        for _ in range(STALE_LOOKS):
            try:
                return call()
            except OSError as exc:
                if exc.errno != errno.ESTALE:
                    raise
        raise FileNotFoundError(errno.ENOENT, "stale on every attempt", self.path(name))

    @contextmanager
    def create(self, name: str) -> Iterator[NewFile]:
        """Open a new file; without `NewFile.commit` it is discarded."""
        file = NewFile(self, name)
        try:
            yield file
        finally:
            file.discard()


class NewFile(WriteOnly):
    """A file being written: a binary, write-only file object that pyarrow accepts."""

    def __init__(self, folder: Folder, name: str) -> None:
        self.folder, self.name = folder, name
        self._checksum = self._modified_ns = 0
        self._sealed: dict[str, Any] | None = None
        self._is_discarded = False
        self._final = folder.path(name)
        if folder.is_local:
            temporary = Path(folder.path(TEMPORARY_FOLDER))
            temporary.mkdir(parents=True, exist_ok=True)
            self._path = str(temporary / f"{uuid.uuid4().hex}")
            self._file: Any = open(self._path, "wb", buffering=1 << 20)  # noqa: SIM115
        else:
            # An object appears under its final name when its upload is finished: nothing to rename.
            self._path = self._final
            filesystem = folder._filesystem[0]
            bucket = (str(filesystem._fs_token), folder.root.partition("/")[0])
            if not (folder.is_object_store and bucket in _written_to):
                filesystem.makedirs(filesystem._parent(self._final), exist_ok=True)
                _written_to.add(bucket)
            self._file = filesystem.open(self._final, "wb", block_size=PART_BYTES)

    def write(self, content: Any) -> int:
        """Append bytes."""
        view = memoryview(content).cast("B")
        if self._is_discarded:  # pyarrow always ends a file when its writer is garbage-collected
            return len(view)
        self._checksum = zlib.crc32(view, self._checksum)
        self._file.write(view)
        self.size_bytes += len(view)
        return len(view)

    def seal(self) -> None:
        """Finish writing and give back the file descriptor; a local file is still under its temporary name."""
        self._finish()
        if not self.folder.is_local and self._sealed is None:
            self._sealed = self.folder.info(self.name)

    def _finish(self) -> None:
        if self._file.closed:
            return
        self._file.flush()
        if self.folder.is_local and self.folder.is_durable:
            os.fsync(self._file.fileno())
        self._file.close()

    def commit(self, rows: int = 0) -> FileRecord:
        """Make the file visible under its name, after making it durable if the folder's files are."""
        self._finish()
        if self.folder.is_local:
            Path(self._final).parent.mkdir(parents=True, exist_ok=True)
            os.replace(self._path, self._final)
            self._modified_ns = os.stat(self._final).st_mtime_ns  # where a mounted store copies, this is another time
        self.closed = True
        if self.folder.is_local and self.folder.is_durable:
            sync_folder(Path(self._final).parent)
        return FileRecord(self.name, rows, self.size_bytes, self._checksum, self._modified_ns)

    def discard(self) -> None:
        """Discard the file unless it was committed."""
        if self.closed:
            return
        self.closed = self._is_discarded = True
        if self.folder.is_local:
            _close_unflushed(self._file)
            with suppress(FileNotFoundError):  # a run that resumed this one has deleted it
                os.unlink(self._path)
        elif self._is_ours():
            self.folder.delete(self.name)

    def _is_ours(self) -> bool:
        """Finish an upload; return whether the file under the name is the one that this process wrote.

        It may be another: a task of an interrupted run may end after the resumed run has written the same file.
        """
        if self._sealed is not None:
            return self.folder.info(self.name) == self._sealed
        if isinstance(self._file, AbstractBufferedFile):  # nothing is visible before it is closed
            _abort(self._file)
            return False
        return self.folder.exists(self.name)  # this file system shows a file from its first byte on


def _abort(file: Any) -> None:
    """Cancel a multipart upload, and close the file without writing its buffer."""
    try:
        if hasattr(file, "discard"):
            file.discard()
    except Exception as exc:  # noqa: BLE001 - the first error matters; stores expire unfinished uploads
        LOG.info("cannot cancel the upload of %s: %s", file.path, exc)
    finally:
        file.closed = True


def _close_unflushed(file: Any) -> None:
    """Close a file without writing its buffer: the disk may be full, and the content is not needed."""
    if not file.closed:
        with open(os.devnull, "wb") as nothing:
            os.dup2(nothing.fileno(), file.fileno())
        file.close()


@contextmanager
def disk_errors(folder: Folder) -> Iterator[None]:
    """Convert "no space left", and the loss of a folder, to an error that names the folder and the remedy."""
    try:
        yield
    except CuratorError:
        raise
    except FileNotFoundError as exc:
        name = exc.filename if isinstance(exc.filename, str) else ""
        home, _, unfinished = name.partition(f"/{TEMPORARY_FOLDER}/")
        if not unfinished and not (folder.is_local and f"{name}/".startswith(f"{folder.root}/")):
            raise
        raise moved_away(home if unfinished else folder.url) from exc
    except OSError as exc:
        if exc.errno == errno.EFBIG:
            raise DiskFullError(
                f"a file in {folder.url} would be larger than a limit of this shell (ulimit -f) or the file system allows. Set "
                "ulimit -f unlimited, or write smaller files with target_file_size=, and repeat the run with "
                "on_existing='resume'; finished files are kept"
            ) from exc
        if exc.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        free = folder.free_bytes()
        known = "" if free is None else f" ({show_size(free)} free)"
        raise DiskFullError(
            f"no space left in {folder.url}{known}. Free some space, then repeat the run with on_existing='resume'; "
            "finished files are kept"
        ) from exc


def moved_away(url: str) -> OutputChangedError:
    """Return the error for an output folder that no longer exists."""
    return OutputChangedError(
        f"{url} was renamed, moved or deleted while files were written to it. Do not move the folder during a run. "
        "Move it back, or delete what is there now, and repeat the run with on_existing='resume'. If it is below the spill "
        "folder of a cluster, start the cluster again before that"
    )


@contextmanager
def output_errors(folder: Folder) -> Iterator[None]:
    """Convert a file system's error for a folder that cannot be created to an error that gives the cause."""
    try:
        yield
    except CuratorError:
        raise
    except OSError as exc:
        if not isinstance(exc, _UNUSABLE) and exc.errno not in (errno.EROFS, errno.ENAMETOOLONG, errno.ELOOP):
            raise
        above = Path(folder.root)
        while folder.is_local and not os.path.lexists(above):
            above = above.parent
        if folder.is_local and not above.is_dir():
            kind = "a file" if os.path.exists(above) else f"a link to {os.readlink(above)!r}"
            raise OutputExistsError(
                f"{folder.url} cannot be written to: {above} is {kind}, not a folder. Use another output folder"
            ) from exc
        raise ParameterError(
            f"{folder.url} cannot be written to: {exc.strerror or exc}. Use a folder that this process may write to"
        ) from exc


@contextmanager
def reading_errors(path: str) -> Iterator[None]:
    """Convert a missing permission, a loop of links, or a name that is too long to an error that names the file or folder."""
    try:
        yield
    except OSError as exc:
        is_wrong = exc.errno in (errno.ELOOP, errno.ENAMETOOLONG)
        if not (is_wrong or exc.errno in (errno.EACCES, errno.EPERM)) or isinstance(exc, CuratorError):
            raise
        way_out = ". Correct the path" if is_wrong else ". Its owner can permit it (chmod -R a+rX)"
        raise InputError(f"{path} cannot be read: {exc.strerror or exc}{way_out}") from exc


def shown_path(path: str) -> str:
    r"""Return a path as valid text; bytes that are not UTF-8 are shown as hex digits.

    Examples
    --------
    >>> print(shown_path(b"caf\xe9.jsonl".decode("utf-8", "surrogateescape")))
    caf\xe9.jsonl
    """
    # os.fsencode is not used: if the file system's encoding is ASCII, it rejects the names of other stores.
    return path.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def sync_folder(folder: Path) -> None:
    """Write the names in a local folder to disk."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _protocols(filesystem: Any) -> tuple[str, ...]:
    protocol = filesystem.protocol
    return (protocol,) if isinstance(protocol, str) else tuple(protocol)
