# SPDX-License-Identifier: Apache-2.0
"""Which files an input names: files, directories, globs and fsspec URLs, as one compact value.

Local matching is done here: a path that exists is taken as it stands, whatever characters it has, before it is read as
a glob; directories are walked through symlinks, and a loop of them ends. Other file systems are asked through fsspec.
"""

from __future__ import annotations

import fnmatch
import functools
import hashlib
import os
import re
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from curator_df.core.files.transient import is_transient, patiently
from curator_df.errors import InputError, ParameterError
from curator_df.io.found_later import MAGIC, URL, finds

Paths = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]
"""What users may give as input."""
COMPRESSED_SUFFIXES = (".gz", ".gzip", ".zst", ".zstd", ".bz2", ".xz")
"""Suffixes of files that are decompressed while they are read."""
READERS = {
    "read_jsonl": (".jsonl", ".ndjson", ".json", ".jsonlines"),
    "read_parquet": (".parquet", ".parq", ".pq"),
    "read_text_files": (".txt", ".text", ".md"),
    "read_warc": (".warc", ".wet"),
}
"""Readers by the suffixes of their files, for errors."""
OTHER_SUFFIXES = tuple(
    plain + packed for plains in READERS.values() for plain in plains for packed in ("", *COMPRESSED_SUFFIXES)
)
SHOWN_NAMES = 8
"""How many names of a directory an error lists."""
STAMP_KEYS = (
    "etag",
    "ETag",
    "md5Hash",
    "checksum",
    "crc32c",
    "mtime",
    "LastModified",
    "last_modified",
    "updated",
    "created",
)
"""Under these keys fsspec file systems give something that changes when a file does; the first one there counts."""

_Found = tuple[str, int, int]


@dataclass(frozen=True, eq=False)
class Listing:
    """The files of an input, in order. 100,000 of them pickle to about 2 MB."""

    packed_paths: bytes
    """Paths or URLs joined by NUL (no path can hold one), compressed."""
    sizes: npt.NDArray[np.int64]
    """Bytes of each file as it lies on disk."""
    stamps: npt.NDArray[np.int64]
    """Modification time in ns (local), or a hash of the ETag or what the file system has like it; 0 for nothing."""
    storage_options: Mapping[str, Any] = field(default_factory=dict, repr=False)
    """Options for fsspec; they may hold secrets and are in no fingerprint."""
    entries: tuple[str, ...] = ()
    """What the user named, absolute, but for single files."""
    suffixes: tuple[str, ...] = ()
    """What files found in a directory must end in."""

    def __len__(self) -> int:
        return len(self.sizes)

    @property
    def paths(self) -> tuple[str, ...]:
        """Paths or URLs in input order; unpacked once in each process."""
        return _unpack(self.packed_paths)

    @property
    def total_bytes(self) -> int:
        """Bytes of all files as they lie on disk."""
        return int(self.sizes.sum())

    @property
    def fingerprint(self) -> str:
        """Digest of paths, sizes and stamps, as 32 hex digits."""
        digest = hashlib.blake2b(digest_size=16)
        for part in (zlib.decompress(self.packed_paths), self.sizes.tobytes(), self.stamps.tobytes()):
            digest.update(len(part).to_bytes(8, "little") + part)
        return digest.hexdigest()

    def would_find(self, path: str) -> str | None:
        """Return the entry by which the next listing would find a new file at this path or URL, None if by none."""
        return next((entry for entry in self.entries if finds(entry, path, self.suffixes)), None)

    def __dask_tokenize__(self) -> Any:
        """Identify the value for Dask without walking it."""
        return ("curator_df.Listing", self.fingerprint, self.entries, sorted(self.storage_options))


def list_files(
    paths: Paths, *, suffixes: Sequence[str] = (), storage_options: Mapping[str, Any] | None = None
) -> Listing:
    """List the files that paths, directories, globs and URLs name.

    Parameters
    ----------
    paths : str, path or list of them
        Files, directories (walked whole), globs (``*``, ``?``, ``[ab]``, ``**``) or fsspec URLs. Each entry is sorted
        by path; entries keep their order; a file named twice counts once, where it was first.
    suffixes : sequence of str
        What files found in a directory must end in; all files when empty. Files named or matched by a glob need not.
    storage_options : mapping, optional
        Options for the fsspec file system of URLs.

    Returns
    -------
    Listing
        Paths, sizes and stamps.

    Raises
    ------
    InputError
        An entry matches nothing.
    ParameterError
        There is no entry, or an entry is not a path.

    Notes
    -----
    Names that begin with ``.`` or ``_`` are skipped while walking, never when named.
    """
    options = dict(storage_options or {})
    found: dict[str, _Found] = {}
    wide = []
    for entry in _entries(paths):
        matches = _remote(entry, tuple(suffixes), options) if _is_remote(entry) else _local(entry, tuple(suffixes))
        for match in matches:
            found.setdefault(match[0], match)
        if [match[0] for match in matches[:2]] != [absolute := _absolute(entry, options)]:
            wide.append(absolute)
    return Listing(
        packed_paths=zlib.compress("\0".join(found).encode("utf-8", "surrogateescape"), 1),
        sizes=np.fromiter((size for _, size, _ in found.values()), np.int64, len(found)),
        stamps=np.fromiter((stamp for _, _, stamp in found.values()), np.int64, len(found)),
        storage_options=options,
        entries=tuple(wide),
        suffixes=tuple(suffixes),
    )


@functools.lru_cache(maxsize=8)
def _unpack(packed: bytes) -> tuple[str, ...]:
    return tuple(zlib.decompress(packed).decode("utf-8", "surrogateescape").split("\0"))


def _entries(paths: Paths) -> list[str]:
    given = [paths] if isinstance(paths, (str, os.PathLike)) else list(paths)
    if not given:
        raise ParameterError("paths is empty: name at least one file, directory, glob or URL")
    for entry in given:
        if not isinstance(entry, (str, os.PathLike)) or not os.fspath(entry):
            raise ParameterError(f"paths holds {entry!r}, which is not a path: a str or os.PathLike is needed")
    return [os.fspath(entry) for entry in given]


def _is_remote(entry: str) -> bool:
    return bool(URL.match(entry)) and not entry.startswith("file://") and not os.path.lexists(entry)


def _local(entry: str, suffixes: tuple[str, ...]) -> list[_Found]:
    path = _absolute(entry, {})
    if os.path.isfile(path):
        return [_stamped(path)]
    if os.path.isdir(path):
        found = sorted(set(_walk(path, suffixes, set())))
        if not found:
            wanted = f" that ends in {shown_suffixes(suffixes)}" if suffixes else ""
            others = [name for name, _, _ in _walk(path, OTHER_SUFFIXES, set())] if suffixes else []
            raise InputError(
                f"the directory {path!r} has no file{wanted}; it holds {_names(os.listdir(path))}{_readers(others)}"
            )
        return found
    if not MAGIC.search(path):
        raise InputError(f"there is no file {path!r}; {_nearest(path)}")
    found = sorted(set(_glob("/", path.strip("/").split("/"), suffixes, "**" in path.split("/"))))
    if not found:
        raise InputError(f"nothing matches {path!r}; {_nearest(path)}")
    return found


def _absolute(entry: str, options: Mapping[str, Any]) -> str:
    """Return an entry as an absolute path, or as its file system writes the URL."""
    if not _is_remote(entry):
        return os.path.abspath(os.path.expanduser(entry.removeprefix("file://")))
    import fsspec

    system, path = fsspec.core.url_to_fs(entry, **options)
    return str(system.unstrip_protocol(path.rstrip("/")))


def _stamped(path: str) -> _Found:
    status = os.stat(path)
    return path, status.st_size, status.st_mtime_ns


def _visible(directory: str, pattern: str = "") -> list[os.DirEntry[str]]:
    """List a directory; names that begin with a dot or underscore only if the pattern begins so."""
    try:
        with os.scandir(directory) as entries:
            return [entry for entry in entries if entry.name[0] not in "._" or entry.name[0] == pattern[:1]]
    except OSError as exc:
        raise InputError(f"cannot list the directory {directory!r}: {exc.strerror}") from exc


def _new_directory(path: str, visited: set[tuple[int, int]]) -> bool:
    """Note a directory by device and inode; False when it was seen, as in a loop of symlinks."""
    status = os.stat(path)
    identity = (status.st_dev, status.st_ino)
    if identity in visited:
        return False
    visited.add(identity)
    return True


def _walk(directory: str, suffixes: tuple[str, ...], visited: set[tuple[int, int]]) -> Iterator[_Found]:
    pending = [directory]
    while pending:
        directory = pending.pop()
        if not _new_directory(directory, visited):
            continue
        # Sorted in reverse: of two links to one directory the first by name is walked, whatever the disk's order.
        for entry in sorted(_visible(directory), key=lambda item: item.name, reverse=True):
            if entry.is_dir():
                pending.append(entry.path)
            elif entry.is_file() and (not suffixes or entry.name.lower().endswith(suffixes)):
                status = entry.stat()
                yield entry.path, status.st_size, status.st_mtime_ns


def _glob(directory: str, parts: list[str], suffixes: tuple[str, ...], recursive: bool) -> Iterator[_Found]:
    """Match the pattern's parts below a directory. A matched directory is walked, unless the glob itself recurses."""
    if not parts:
        yield from _matched(directory, suffixes, recursive)
        return
    part, rest = parts[0], parts[1:]
    if part == "**":
        for below in _directories(directory):
            yield from _glob(below, rest or ["*"], suffixes, recursive)
    elif os.path.lexists(os.path.join(directory, part)):
        yield from _glob(os.path.join(directory, part), rest, suffixes, recursive)
    elif MAGIC.search(part) and os.path.isdir(directory):
        matches = re.compile(fnmatch.translate(part)).match
        for entry in _visible(directory, part):
            if matches(entry.name) and (not rest or entry.is_dir()):
                yield from _glob(entry.path, rest, suffixes, recursive)


def _matched(path: str, suffixes: tuple[str, ...], recursive: bool) -> Iterator[_Found]:
    if os.path.isfile(path):
        yield _stamped(path)
    elif not recursive and os.path.isdir(path):
        yield from _walk(path, suffixes, set())


def _directories(root: str) -> Iterator[str]:
    """Yield a directory and all below it, each once."""
    visited: set[tuple[int, int]] = set()
    pending = [root] if os.path.isdir(root) else []
    while pending:
        directory = pending.pop()
        if _new_directory(directory, visited):
            yield directory
            below = sorted((entry.path for entry in _visible(directory) if entry.is_dir()), reverse=True)
            pending.extend(below)


def _nearest(path: str) -> str:
    """Say what is in the nearest directory above a path that does exist."""
    parent = os.path.dirname(path)
    while not os.path.isdir(parent):
        parent = os.path.dirname(parent)
    return f"{parent!r} holds {_names(os.listdir(parent))}"


def _names(names: Iterable[str]) -> str:
    shown = sorted(names)
    more = f" and {len(shown) - SHOWN_NAMES:,} more" if len(shown) > SHOWN_NAMES else ""
    return (", ".join(repr(name) for name in shown[:SHOWN_NAMES]) or "nothing") + more


def _readers(names: Iterable[str]) -> str:
    """Say which readers are for files with these names."""
    found = {
        f"{reader} reads files that end in {_either(suffixes)}"
        for name in names
        for reader, suffixes in READERS.items()
        if name.lower().endswith(tuple(plain + packed for plain in suffixes for packed in ("", *COMPRESSED_SUFFIXES)))
    }
    return "".join(f". {said}" for said in sorted(found))


def _remote(url: str, suffixes: tuple[str, ...], options: dict[str, Any]) -> list[_Found]:
    import fsspec

    if "::" in url:
        raise ParameterError(f"chained URLs are not read: {url!r}; name the files themselves")
    try:
        system, path = fsspec.core.url_to_fs(url, **options)
    except (ImportError, ValueError) as exc:
        raise ParameterError(f"cannot read {url!r}: {exc}") from exc
    infos = patiently(f"list {url!r}", lambda: _remote_infos(system, path, suffixes))
    if not infos:
        others = _remote_infos(system, path, OTHER_SUFFIXES) if suffixes else []
        readers = _readers(info["name"] for info in others)
        raise InputError(f"nothing matches {url!r}; {_nearest_remote(system, path)}{readers}")
    return sorted(_remote_found(system, url, info) for info in infos)


def _remote_infos(system: Any, path: str, suffixes: tuple[str, ...]) -> list[dict[str, Any]]:
    system.invalidate_cache()  # what was listed before may have been written to since
    there = _info(system, path)
    if there is not None and there["type"] == "file":
        return [there]
    if system.isdir(path) if there is None else there["type"] == "directory":
        infos = system.find(path, detail=True).values()
        return [info for info in infos if _is_wanted(info["name"], path, suffixes)]
    if not MAGIC.search(path):
        return []
    literal = path[: MAGIC.search(path).start()].rpartition("/")[0]  # type: ignore[union-attr]
    infos = system.glob(path, detail=True).values()
    return [info for info in infos if info["type"] == "file" and _is_wanted(info["name"], literal, ())]


def _info(system: Any, path: str) -> dict[str, Any] | None:
    """Return what is at a path. fsspec's own `isfile` says no as well when the file system could not be asked."""
    try:
        found: dict[str, Any] = system.info(path)
    except Exception as exc:  # whatever a file system raises for what it does not have
        if is_transient(exc):
            raise
        return None
    return found


def _is_wanted(name: str, root: str, suffixes: tuple[str, ...]) -> bool:
    below = name.strip("/").removeprefix(root.strip("/")).strip("/").split("/")
    return not any(part[:1] in (".", "_") for part in below) and (not suffixes or name.lower().endswith(suffixes))


def _remote_found(system: Any, url: str, info: dict[str, Any]) -> _Found:
    if info.get("size") is None:
        raise InputError(f"{info['name']!r} (from {url!r}) has no known size; copy it to a file system that knows it")
    mark = next((str(info[key]) for key in STAMP_KEYS if info.get(key) is not None), "")
    digest = hashlib.blake2b(mark.encode(), digest_size=8).digest() if mark else bytes(8)
    return str(system.unstrip_protocol(info["name"])), int(info["size"]), int.from_bytes(digest, "little", signed=True)


def _nearest_remote(system: Any, path: str) -> str:
    parent = path.rstrip("/")
    while "/" in parent:
        parent = parent.rpartition("/")[0]
        if not MAGIC.search(parent) and system.isdir(parent):
            names = [str(name).rstrip("/").rpartition("/")[2] for name in system.ls(parent, detail=False)]
            return f"{parent!r} holds {_names(names)}"
    return "nothing above it exists either"


def shown_suffixes(suffixes: Sequence[str]) -> str:
    """Return suffixes in words, those of compressed files together.

    Examples
    --------
    >>> shown_suffixes([".jsonl", ".jsonl.gz", ".jsonl.zst", ".json", ".json.gz"]), shown_suffixes([".pq"])
    ('.jsonl or .json, or in one of these and .gz or .zst', '.pq')
    """
    plain = [suffix for suffix in suffixes if not suffix.endswith(COMPRESSED_SUFFIXES)]
    packed = [packing for packing in COMPRESSED_SUFFIXES if any(suffix.endswith(packing) for suffix in suffixes)]
    return _either(plain) + (f", or in one of these and {_either(packed)}" if packed else "")


def _either(words: Sequence[str]) -> str:
    return " or ".join([", ".join(words[:-1]), *words[-1:]] if len(words) > 1 else words)
