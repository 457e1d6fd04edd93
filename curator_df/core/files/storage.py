# SPDX-License-Identifier: Apache-2.0
"""Folders that runs write to: local (temporary name, fsync, rename) or any fsspec URL (an object appears when closed).

A file is seen under its final name only when it is whole. Its checksum is taken from the bytes as they are written.
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
from typing import Any, TypeVar

import fsspec
from fsspec.spec import AbstractBufferedFile

from curator_df.core.files.transient import patiently
from curator_df.core.files.write_only import WriteOnly
from curator_df.core.sizes import show_size
from curator_df.errors import CuratorError, DiskFullError, OutputChangedError, OutputExistsError, ParameterError

JOURNAL_FOLDER = "_curator"
"""Holds journal and temporary files; readers skip names that begin with an underscore."""

TEMPORARY_FOLDER = f"{JOURNAL_FOLDER}/unfinished"
"""Files that are being written."""
LOG = logging.getLogger("curator_df")

STALE_LOOKS = 3
"""At a local file that is stale on each, before it is taken for gone."""
MANY_NAMES = 20
"""Files that a store is asked for one by one; of a thousand it tells in one answer, when it is listed."""
PART_BYTES = 5 << 20
"""Held of a file on its way to a store, and the least that S3 takes as a part of one; s3fs by itself would hold 50 MB."""
_UNUSABLE = (NotADirectoryError, FileExistsError, FileNotFoundError, PermissionError)

T = TypeVar("T")


@dataclass(frozen=True)
class FileRecord:
    """A file that was written whole."""

    name: str
    """Path below the output folder."""
    rows: int
    """Rows in it."""
    size_bytes: int
    """Its size on disk."""
    checksum: int
    """CRC-32 of its bytes."""


@dataclass(frozen=True)
class Folder:
    """A place to write to, as a path or an fsspec URL."""

    url: str
    """Absolute path or URL, without a trailing slash. A relative path is made absolute: workers have other directories."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Storage options for fsspec."""
    is_durable: bool = True
    """Whether a file is on a local disk (fsync) before it is seen. Off for what `stages.mended` writes again, should a crash
    of the machine have damaged it."""

    def __post_init__(self) -> None:
        """Resolve a relative path now, in the process that was given it."""
        if "://" not in self.url and "::" not in self.url:
            object.__setattr__(self, "url", os.path.abspath(os.path.expanduser(self.url)))

    def below(self, name: str) -> Folder:
        """Return a sub-folder."""
        return replace(self, url=f"{self.url}/{name}")

    @cached_property
    def _filesystem(self) -> tuple[Any, str]:
        try:
            return fsspec.core.url_to_fs(self.url, **self.options)  # type: ignore[no-any-return]
        except (ImportError, ValueError) as exc:  # its package is not installed, or there is no such protocol
            raise ParameterError(f"{self.url!r} cannot be used: {exc}") from exc

    @property
    def is_local(self) -> bool:
        """True for a path of this machine's file systems."""
        return "file" in _protocols(self._filesystem[0])

    @property
    def filesystem(self) -> Any:
        """The fsspec file system that it is on."""
        return self._filesystem[0]

    @property
    def root(self) -> str:
        """Path of the folder on its file system."""
        return self._filesystem[1]

    @property
    def remote_url(self) -> str:
        """URL of a folder that is not local, as its file system writes it: one for all names of a protocol."""
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

    def sizes(self) -> dict[str, int]:
        """Return the bytes of all files below the folder, by path relative to it."""
        if self.is_local:
            sizes = {}
            for name in self.names():
                # A task of a run that was killed may still rename or delete its files.
                with suppress(FileNotFoundError):
                    sizes[name] = os.stat(self.path(name)).st_size
            return sizes
        return {name: int(entry["size"]) for name, entry in self._found().items()}

    def read(self, name: str) -> bytes:
        """Return the bytes of a file."""
        filesystem, _ = self._filesystem
        return self._patiently("read", name, lambda: bytes(filesystem.cat_file(self.path(name))))

    def exists(self, name: str) -> bool:
        """Tell whether a file is there."""
        return self.info(name) is not None

    def info(self, name: str) -> dict[str, Any] | None:
        """Return what the file system says of a file, None if it is not there."""
        # fsspec's own `exists` says of some file systems that a file is not there when they could not be asked.
        filesystem, _ = self._filesystem

        def look_up() -> dict[str, Any]:
            filesystem.invalidate_cache()  # others may have written or deleted it
            found: dict[str, Any] = filesystem.info(self.path(name))
            return found

        try:
            return self._patiently("look up", name, look_up)
        except (FileNotFoundError, NotADirectoryError):
            return None

    def size(self, name: str) -> int | None:
        """Return the bytes of a file, None if it is not there."""
        info = self.info(name)
        return None if info is None else int(info["size"])

    def sizes_of(self, names: Sequence[str]) -> dict[str, int]:
        """Return the bytes of those of some files that are there. A store is listed if they are many: it answers slowly."""
        if not self.is_local and len(names) > MANY_NAMES:
            return self.sizes()
        return {name: size for name in names if (size := self.size(name)) is not None}

    def holds(self, files: Sequence[FileRecord]) -> bool:
        """Tell whether files are all there and whole, as far as their sizes tell."""
        sizes = self.sizes_of([file.name for file in files])
        return all(sizes.get(file.name) == file.size_bytes for file in files)

    def delete(self, name: str) -> None:
        """Delete a file."""
        self._patiently("delete", name, lambda: self._filesystem[0].rm_file(self.path(name)))

    def write(self, name: str, content: bytes) -> None:
        """Write a small file whole, and durably."""
        folder = replace(self, is_durable=True)

        def write() -> None:
            with folder.create(name) as file:
                file.write(content)
                file.commit()

        with disk_errors(self):
            self._patiently("write", name, write)

    def delete_tree(self, name: str) -> None:
        """Delete a sub-folder and what is in it; nothing happens if it is not there."""
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
        """Return what a file system that is not local says of each file below the folder, by path relative to it."""
        filesystem, root = self._filesystem

        def find() -> dict[str, dict[str, Any]]:
            filesystem.invalidate_cache()
            found: dict[str, dict[str, Any]] = filesystem.find(root, detail=True)
            return found

        found = self._patiently("list", "", find)
        return {path[len(root) :].lstrip("/"): entry for path, entry in found.items()}

    def _patiently(self, verb: str, name: str, call: Callable[[], T]) -> T:
        """Call, and where the file system is not local again, while its errors pass by themselves.

        NFS calls a file stale that another machine has replaced or deleted: the next look finds what is there now.
        """
        if not self.is_local:
            return patiently(f"{verb} {f'{self.url}/{name}'.rstrip('/')!r}", call)
        for _ in range(STALE_LOOKS):
            try:
                return call()
            except OSError as exc:
                if exc.errno != errno.ESTALE:
                    raise
        raise FileNotFoundError(errno.ENOENT, "stale on every look", self.path(name))

    @contextmanager
    def create(self, name: str) -> Iterator[NewFile]:
        """Open a new file; without `NewFile.commit` nothing of it stays."""
        file = NewFile(self, name)
        try:
            yield file
        finally:
            file.discard()


class NewFile(WriteOnly):
    """A file being written: a binary, write-only file object that pyarrow accepts."""

    def __init__(self, folder: Folder, name: str) -> None:
        self.folder, self.name = folder, name
        self._checksum = 0
        self._sealed: dict[str, Any] | None = None
        self._final = folder.path(name)
        if folder.is_local:
            temporary = Path(folder.path(TEMPORARY_FOLDER))
            temporary.mkdir(parents=True, exist_ok=True)
            self._path = str(temporary / f"{uuid.uuid4().hex}")
            self._file: Any = open(self._path, "wb", buffering=1 << 20)  # noqa: SIM115
        else:
            # An object appears when its upload is finished, under its own name: nothing to rename.
            self._path = self._final
            filesystem = folder._filesystem[0]
            filesystem.makedirs(filesystem._parent(self._final), exist_ok=True)
            self._file = filesystem.open(self._final, "wb", block_size=PART_BYTES)

    def write(self, content: Any) -> int:
        """Append bytes."""
        view = memoryview(content).cast("B")
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
        """Make the file visible under its name, and durable before that if the folder's files are."""
        self._finish()
        if self.folder.is_local:
            Path(self._final).parent.mkdir(parents=True, exist_ok=True)
            os.replace(self._path, self._final)
        self.closed = True
        if self.folder.is_local and self.folder.is_durable:
            sync_folder(Path(self._final).parent)
        return FileRecord(self.name, rows, self.size_bytes, self._checksum)

    def discard(self) -> None:
        """Drop the file unless it was committed."""
        if self.closed:
            return
        self.closed = True
        if self.folder.is_local:
            _close_unflushed(self._file)
            with suppress(FileNotFoundError):  # a run that goes on with this one has deleted it
                os.unlink(self._path)
        elif self._is_ours():
            self.folder.delete(self.name)

    def _is_ours(self) -> bool:
        """End an upload; tell whether what is there under the name is what this one wrote.

        It need not be: a task of an interrupted run may end after the resumed run has written the same file.
        """
        if self._sealed is not None:
            return self.folder.info(self.name) == self._sealed
        if isinstance(self._file, AbstractBufferedFile):  # nothing is seen before it is closed
            _abort(self._file)
            return False
        return self.folder.exists(self.name)  # a file system that shows a file from its first byte on


def _abort(file: Any) -> None:
    """End an upload in parts, and close the file without writing what is still buffered."""
    try:
        if hasattr(file, "discard"):
            file.discard()
    except Exception as exc:  # noqa: BLE001 - what failed before is what counts; stores end such uploads by a rule of theirs
        LOG.info("cannot end the upload of %s: %s", file.path, exc)
    finally:
        file.closed = True


def _close_unflushed(file: Any) -> None:
    """Close a file without writing what is still buffered: the disk may be full, and nobody wants it."""
    if not file.closed:
        with open(os.devnull, "wb") as nothing:
            os.dup2(nothing.fileno(), file.fileno())
        file.close()


@contextmanager
def disk_errors(folder: Folder) -> Iterator[None]:
    """Turn "no space left", and a folder that went away, into an error that says where and what to do."""
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
        if exc.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        free = folder.free_bytes()
        known = "" if free is None else f" ({show_size(free)} free)"
        raise DiskFullError(
            f"no space left in {folder.url}{known}: make room, then run the same again with on_existing='resume'; "
            "what is finished stays"
        ) from exc


def moved_away(url: str) -> OutputChangedError:
    """Return the error for a folder that a run writes to and that is not there any more."""
    return OutputChangedError(
        f"{url} was renamed, moved or deleted while files were written to it. Leave the folder where it is until the run "
        "ends. Move it back, or delete what is there now, and run the same with on_existing='resume'. If it is below the spill "
        "folder of a cluster, start the cluster again before that"
    )


@contextmanager
def output_errors(folder: Folder) -> Iterator[None]:
    """Turn what a file system says of a folder that cannot be made into an error that says why."""
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
            raise OutputExistsError(
                f"{folder.url} cannot be written to: {above} is no folder, and what a run writes goes to a folder; name another"
            ) from exc
        raise ParameterError(
            f"{folder.url} cannot be written to: {exc.strerror or exc}; name a folder that this process may make files in"
        ) from exc


def shown_path(path: str) -> str:
    r"""Return a path as valid text; bytes that are not UTF-8 are shown by their hex digits.

    Examples
    --------
    >>> print(shown_path(b"caf\xe9.jsonl".decode("utf-8", "surrogateescape")))
    caf\xe9.jsonl
    """
    # Not os.fsencode: where the file system's encoding is ASCII it refuses the names of other stores.
    return path.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def sync_folder(folder: Path) -> None:
    """Have the names in a local folder on disk."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _protocols(filesystem: Any) -> tuple[str, ...]:
    protocol = filesystem.protocol
    return (protocol,) if isinstance(protocol, str) else tuple(protocol)


def split_files(manifests: Sequence[Mapping[str, Any]], folder: str) -> tuple[FileRecord, ...]:
    """Return the files of some tasks that lie in a sub-folder, in the order of the tasks."""
    return tuple(file for done in manifests for file in done["files"] if file.name.startswith(f"{folder}/"))
