# SPDX-License-Identifier: Apache-2.0
"""Files of an input: files, directories, globs and fsspec URLs, as one compact value.

Local paths are matched here: an existing path is used literally, regardless of its characters, before it is read as
a glob; directories are walked through symlinks, and a loop of them ends. Other file systems are accessed through fsspec.
"""

from __future__ import annotations

import array
import bisect
import errno
import fnmatch
import functools
import hashlib
import os
import re
import stat
import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from curator_df.arguments import absolute, did_you_mean_path, has_no_bytes
from curator_df.core.runner.progress import with_progress_lines
from curator_df.errors import CuratorError, InputError, ParameterError, RemoteFileError, without_frames
from curator_df.files.hub import Commits, is_pinned, pinned, pins_of, without_commits
from curator_df.files.retry import is_transient, retry_transient, shown_error
from curator_df.files.storage import file_system
from curator_df.io.formats import COMPRESSED_SUFFIXES, ways_out
from curator_df.io.glob_match import MAGIC, URL, finds

Paths = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]
"""Input as users may give it."""
READERS = {
    "read_csv": (".csv", ".tsv", ".tab"),
    "read_jsonl": (".jsonl", ".ndjson", ".json", ".jsonlines"),
    "read_parquet": (".parquet", ".parq", ".pq"),
    "read_text_files": (".txt", ".text", ".md"),
    "read_warc": (".warc", ".wet"),
}
"""Readers by the suffixes of their files, for errors."""
ARC_SUFFIXES = tuple(".arc" + packed for packed in ("", *COMPRESSED_SUFFIXES))
"""Suffixes of web crawls in the format before WARC, which has no reader."""
OTHER_SUFFIXES = ARC_SUFFIXES + tuple(
    plain + packed for plains in READERS.values() for plain in plains for packed in ("", *COMPRESSED_SUFFIXES)
)
SHOWN_NAMES = 8
"""Number of names of a directory that an error lists."""
STAMP_KEYS = (
    "blob_id",  # Hugging Face
    "etag",
    "ETag",
    "sha",  # GitHub
    "content_hash",  # Dropbox
    "md5Checksum",  # Google Drive
    "md5Hash",
    "checksum",
    "crc32c",
    "mtime",
    "LastModified",
    "last_modified",
    "updated",
    "modifiedTime",
    "modificationTime",  # HDFS over the web
    "last_write_time",  # Windows shares
    "modify",  # FTP
    "created",
)
"""Keys of fsspec file systems whose value changes when a file does; the first existing one counts."""
CLOCK_TICK_NS = 20_000_000
"""Longest time in which a kernel gives two changes of a file the same modification time; file systems with whole seconds have
a longer one."""

_Found = tuple[str, int, int]
_READ_OFTEN = "can be read only once, but a run reads its input in parts and more than once. Write it to a file first"
_KINDS = ((stat.S_ISFIFO, "a pipe"), (stat.S_ISSOCK, "a socket"))


class Listed(NamedTuple):
    """State of a file when it was listed."""

    size_bytes: int
    """Size on disk."""
    stamp: int
    """Stamp of the file, as in `Listing.stamps`."""


@dataclass(frozen=True, eq=False)
class Listing:
    """Files of an input, in order. 100,000 of them pickle to about 2 MB."""

    packed_paths: bytes
    """Paths or URLs joined by NUL (no path can contain one), compressed. Surrogates, which Python uses for bytes of a name
    that its file system encoding does not have, are kept."""
    sizes: npt.NDArray[np.int64]
    """Size of each file on disk."""
    stamps: npt.NDArray[np.int64]
    """Modification time in ns (local), or a hash of the ETag or a similar value of the file system; 0 if there is none."""
    storage_options: Mapping[str, Any] = field(default_factory=dict, repr=False)
    """Options for fsspec; they may hold secrets and are in no fingerprint."""
    entries: tuple[str, ...] = ()
    """Absolute entries that the user gave, without single files."""
    suffixes: tuple[str, ...] = ()
    """Required endings of files found in a directory."""

    def __len__(self) -> int:
        return len(self.sizes)

    @property
    def paths(self) -> tuple[str, ...]:
        """Paths or URLs in input order; unpacked once in each process."""
        return _unpack(self.packed_paths)

    @property
    def total_bytes(self) -> int:
        """Total size of all files on disk."""
        return int(self.sizes.sum())

    @property
    def pins(self) -> tuple[str, ...]:
        """Repositories of the Hugging Face hub among the files, each with the commit that is read."""
        return pins_of(self.paths)

    @property
    def fingerprint(self) -> str:
        """Digest of paths (without commits of the hub: equal files of two commits are equal), sizes and stamps, in hex."""
        digest = hashlib.blake2b(digest_size=16)
        paths = without_commits(zlib.decompress(self.packed_paths).decode("utf-8", "surrogatepass"))
        for part in (paths.encode("utf-8", "surrogatepass"), self.sizes.tobytes(), self.stamps.tobytes()):
            digest.update(len(part).to_bytes(8, "little") + part)
        return digest.hexdigest()

    def listed(self, path: str) -> Listed:
        """Return the state of a file when it was listed."""
        hashes, numbers, paths = _places(self.packed_paths)
        place = bisect.bisect_left(hashes, hash(path))
        while paths[numbers[place]] != path:  # another path with the same hash
            place += 1
        return Listed(self.sizes.item(numbers[place]), self.stamps.item(numbers[place]))

    def would_find(self, path: str, *, any_format: bool = False) -> str | None:
        """Return the entry by which the next listing would find a new file at this path or URL, or None.

        With ``any_format``, a file in a directory counts with any suffix, because `kinds` refuses a mixture of formats.
        """
        suffixes = () if any_format else self.suffixes
        return next((entry for entry in self.entries if finds(entry, path, suffixes)), None)

    def __dask_tokenize__(self) -> Any:
        """Identify the value for Dask without walking it."""
        return ("curator_df.Listing", self.fingerprint, self.entries, sorted(self.storage_options))


@with_progress_lines("listing the input files")
def list_files(
    paths: Paths, *, suffixes: Sequence[str] = (), storage_options: Mapping[str, Any] | None = None
) -> Listing:
    """List the files of paths, directories, globs and URLs.

    Parameters
    ----------
    paths : str, path or list of them
        Files, directories (walked whole), globs (``*``, ``?``, ``[ab]``, ``**``) or fsspec URLs. Each entry is sorted
        by path; entries keep their order; a file named twice counts once, where it was first.
    suffixes : sequence of str
        Required endings of files found in a directory; all files if empty. Named files and glob matches need none of them.
    storage_options : mapping, optional
        Options for the fsspec file system of URLs.

    Returns
    -------
    Listing
        Paths, sizes and stamps.

    Raises
    ------
    InputError
        If an entry matches nothing.
    ParameterError
        If there is no entry, or an entry is not a path.

    Notes
    -----
    Names that begin with ``.`` or ``_`` are skipped while walking, never when named. A pipe, a socket, a device and a link that
    leads nowhere are errors if their name ends in one of the suffixes, and such a link also if its name has no suffix, like
    that of a directory: they may be a part of the input.
    """
    options, commits, wide = dict(storage_options or {}), Commits(), list[str]()
    found: dict[str, _Found] = {}
    for entry in [pinned(given, options, commits) for given in _entries(paths)]:
        matches = _remote(entry, tuple(suffixes), options) if _is_remote(entry) else _local(entry, tuple(suffixes))
        for match in matches:
            found.setdefault(match[0], match)
        if [match[0] for match in matches[:2]] != [absolute := _absolute(entry, options)]:
            wide.append(absolute)
    _wait_for_next_tick([stamp for path, _, stamp in found.values() if path.startswith("/")])
    return Listing(
        packed_paths=zlib.compress("\0".join(found).encode("utf-8", "surrogatepass"), 1),
        sizes=np.fromiter((size for _, size, _ in found.values()), np.int64, len(found)),
        stamps=np.fromiter((stamp for _, _, stamp in found.values()), np.int64, len(found)),
        storage_options=options,
        entries=tuple(wide),
        suffixes=tuple(suffixes),
    )


@functools.lru_cache(maxsize=8)
def _unpack(packed: bytes) -> tuple[str, ...]:
    return tuple(zlib.decompress(packed).decode("utf-8", "surrogatepass").split("\0"))


def _wait_for_next_tick(stamps: Sequence[int]) -> None:
    """Wait until a change of these files would get a new modification time, by which later changes are detected."""
    newest = max(stamps, default=0)
    tick = CLOCK_TICK_NS if newest % 1_000_000_000 else 1_000_000_000
    age = time.time_ns() - newest
    if 0 <= age < tick:
        time.sleep((tick - age) / 1e9)


@functools.lru_cache(maxsize=8)
def _places(packed: bytes) -> tuple[array.array[int], array.array[int], tuple[str, ...]]:
    """Return the sorted hashes of all paths, the number of each, and the paths: a sixth of the memory of a dictionary."""
    paths = _unpack(packed)
    hashes = np.fromiter(map(hash, paths), np.int64, len(paths))
    order = np.argsort(hashes, kind="stable")
    return array.array("q", hashes[order].tobytes()), array.array("q", order.tobytes()), paths


def _entries(paths: Paths) -> list[str]:
    is_many = isinstance(paths, Iterable) and not isinstance(paths, (str, bytes, os.PathLike))
    given: list[Any] = list(paths) if is_many else [paths]  # type: ignore[arg-type]
    if not given:
        raise ParameterError("paths is empty. Pass at least one file, directory, glob or URL")
    entries = []
    for entry in given:
        path: Any = os.fspath(entry) if isinstance(entry, (str, os.PathLike)) else None
        if not isinstance(path, str) or not path or "\0" in path or has_no_bytes(path):
            said = f"paths has {entry!r}" if is_many else f"paths={entry!r}"
            raise ParameterError(f"{said}, which is not a path. Use a non-empty str or os.PathLike of valid characters")
        entries.append(path)
    return entries


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
            hints = _readers(others) + (ways_out(os.listdir(path)) if suffixes else "")
            raise InputError(f"the directory {path!r} has no file{wanted}. It has {_names(os.listdir(path))}{hints}")
        return found
    _refuse_what_is_there(path, entry)
    if not MAGIC.search(path):
        raise InputError(f"the file {path!r} does not exist; {_nearest(path)}{did_you_mean_path(path)}")
    found = sorted(set(_glob("/", path.strip("/").split("/"), suffixes, "**" in path.split("/"))))
    if not found:
        raise InputError(f"nothing matches {path!r}; {_nearest(path)}{did_you_mean_path(path)}")
    return found


def _absolute(entry: str, options: Mapping[str, Any]) -> str:
    """Return an entry as an absolute path, or as a URL in its file system's form."""
    if not _is_remote(entry):
        return absolute(os.path.expanduser(entry.removeprefix("file://")))
    system, path = file_system(entry, options)
    return str(system.unstrip_protocol(path.rstrip("/")))


def _refuse_what_is_there(path: str, entry: str) -> None:
    """Raise if a path exists that is neither a file nor a directory, or cannot be accessed."""
    try:
        mode = os.stat(path).st_mode
    except FileNotFoundError as exc:
        if os.path.islink(path):
            raise _dangling(path) from exc
        if entry == "-":
            raise InputError(f"'-' is not a file: standard input {_READ_OFTEN}") from exc
        return
    except OSError as exc:
        if exc.errno in (errno.ENOTDIR, errno.ENAMETOOLONG):
            return
        raise InputError(f"cannot access {path!r}: {exc.strerror}{_way_in(exc)}") from exc
    if stat.S_ISREG(mode) or stat.S_ISDIR(mode):
        return
    kind = next((name for is_so, name in _KINDS if is_so(mode)), "a device")
    raise InputError(f"{path!r} is {kind}, which {_READ_OFTEN}")


def _dangling(path: str) -> InputError:
    """Make the error for a link that leads to nothing, or to itself."""
    target = os.readlink(path)
    is_loop = os.path.lexists(os.path.join(os.path.dirname(path), target))
    return InputError(
        f"{path!r} is a link to {target!r}, which {'leads back to it or nowhere' if is_loop else 'does not exist'}, so this part "
        "of the input is missing. Mount or restore what it leads to, or delete the link"
    )


def _require_target(entry: os.DirEntry[str], suffixes: tuple[str, ...] | None) -> None:
    """Raise `InputError` for a link that leads nowhere, if it may have led to a directory, or to a file with such a suffix."""
    wants_file = suffixes is not None and (not suffixes or entry.name.lower().endswith(suffixes))
    may_be_folder = not os.path.splitext(entry.name)[1][1:2].isalpha()  # without a suffix of letters
    if entry.is_symlink() and (wants_file or may_be_folder) and not os.path.exists(entry.path):
        raise _dangling(entry.path)


def _way_in(exc: OSError) -> str:
    return ". Give its parent directories the permission x (chmod +x)" if exc.errno == errno.EACCES else ""


def _stamped(path: str) -> _Found:
    try:
        status = os.stat(path)
    except OSError as exc:
        raise InputError(f"cannot access {path!r}: {exc.strerror}{_way_in(exc)}") from exc
    return path, status.st_size, status.st_mtime_ns


def _visible(directory: str, pattern: str = "") -> list[os.DirEntry[str]]:
    """List a directory; names that begin with a dot or underscore only if the pattern does too."""
    try:
        with os.scandir(directory) as entries:
            return [entry for entry in entries if entry.name[0] not in "._" or entry.name[0] == pattern[:1]]
    except OSError as exc:
        raise InputError(f"cannot list the directory {directory!r}: {exc.strerror}. Check its permissions") from exc


def _new_directory(path: str, visited: set[tuple[int, int]]) -> bool:
    """Record a directory by device and inode; return False if it was already seen, as in a loop of symlinks."""
    try:
        status = os.stat(path)
    except OSError as exc:
        raise InputError(f"cannot access the directory {path!r}: {exc.strerror}{_way_in(exc)}") from exc
    identity = (status.st_dev, status.st_ino)
    if identity in visited:
        return False
    visited.add(identity)
    return True


def _tell(entry: os.DirEntry[str], ask: Callable[[], bool]) -> bool:
    """Ask what a name stands for; a link that leads to itself is like one that leads nowhere: no file, no directory."""
    try:
        return ask()
    except OSError as exc:
        if exc.errno == errno.ELOOP:
            return False
        raise InputError(f"cannot access {entry.path!r}: {exc.strerror}{_way_in(exc)}") from exc


def _walk(directory: str, suffixes: tuple[str, ...], visited: set[tuple[int, int]]) -> Iterator[_Found]:
    pending = [directory]
    while pending:
        directory = pending.pop()
        if not _new_directory(directory, visited):
            continue
        # Sorted in reverse: of two links to one directory, the first by name is walked, independent of the order on disk.
        for entry in sorted(_visible(directory), key=lambda item: item.name, reverse=True):
            if _tell(entry, entry.is_dir):
                pending.append(entry.path)
                continue
            _require_target(entry, suffixes)
            if not suffixes or entry.name.lower().endswith(suffixes):
                if _tell(entry, entry.is_file):
                    yield _stamped(entry.path)
                else:
                    _refuse_what_is_there(entry.path, entry.name)


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
            if not matches(entry.name):
                continue
            if not rest or _tell(entry, entry.is_dir):
                yield from _glob(entry.path, rest, suffixes, recursive)
            else:
                _require_target(entry, None)


def _matched(path: str, suffixes: tuple[str, ...], recursive: bool) -> Iterator[_Found]:
    try:
        mode = os.stat(path).st_mode
    except OSError as exc:
        if exc.errno in (errno.ENOENT, errno.ELOOP) and os.path.islink(path):
            raise _dangling(path) from exc
        raise InputError(f"cannot access {path!r}: {exc.strerror}{_way_in(exc)}") from exc
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
        _refuse_what_is_there(path, path)
    elif stat.S_ISREG(mode) or not recursive:
        yield from [_stamped(path)] if stat.S_ISREG(mode) else _walk(path, suffixes, set())


def _directories(root: str) -> Iterator[str]:
    """Yield a directory and all below it, each once."""
    visited: set[tuple[int, int]] = set()
    pending = [root] if os.path.isdir(root) else []
    while pending:
        directory = pending.pop()
        if _new_directory(directory, visited):
            yield directory
            below = []
            for entry in _visible(directory):
                if _tell(entry, entry.is_dir):
                    below.append(entry.path)
                else:
                    _require_target(entry, None)
            pending.extend(sorted(below, reverse=True))


def _nearest(path: str) -> str:
    """Describe the contents of the nearest existing directory above a path."""
    while not os.path.isdir(parent := os.path.dirname(path)):
        path = parent
    may_list = os.access(parent, os.R_OK, effective_ids=True)
    return f"{parent!r} has {_names(os.listdir(parent))}" if may_list else f"{parent!r} cannot be listed"


def _names(names: Iterable[str]) -> str:
    shown = sorted(names)
    more = f" and {len(shown) - SHOWN_NAMES:,} more" if len(shown) > SHOWN_NAMES else ""
    return (", ".join(repr(name) for name in shown[:SHOWN_NAMES]) or "nothing") + more


def _readers(names: Iterable[str]) -> str:
    """Name the readers for files with these names."""
    names = list(names)
    found = {
        f"{reader} reads files that end in {_either(suffixes)}"
        for name in names
        for reader, suffixes in READERS.items()
        if name.lower().endswith(tuple(plain + packed for plain in suffixes for packed in ("", *COMPRESSED_SUFFIXES)))
    }
    if any(name.lower().endswith(ARC_SUFFIXES) for name in names):
        found.add("ARC files have no reader: convert them to WARC (warcio recompress old.arc.gz new.warc.gz)")
    return "".join(f". {said}" for said in sorted(found))


def _remote(url: str, suffixes: tuple[str, ...], options: dict[str, Any]) -> list[_Found]:
    if "::" in url:
        raise ParameterError(f"chained URLs are not supported: {url!r}. Pass the URLs of the files themselves")
    system, path = file_system(url, options)
    try:
        infos = retry_transient(f"list {url!r}", lambda: _remote_infos(system, path, suffixes))
    except (CuratorError, OSError):
        raise
    except Exception as exc:  # noqa: BLE001 - raised again, without its frames
        # For example those of an HTTP client, which contain neither the request nor the location.
        raise RemoteFileError(
            f"cannot list {url!r}: {shown_error(exc)}. Check the address, the network and the credentials"
        ) from (exc if type(exc).__module__ == "builtins" else without_frames(exc))  # ours keep their frames
    if not infos:
        readers = _readers(info["name"] for info in _remote_infos(system, path, OTHER_SUFFIXES)) if suffixes else ""
        raise InputError(f"nothing matches {url!r}; {_nearest_remote(system, path)}{readers}")
    return sorted(_remote_found(system, url, info) for info in infos)


def _remote_infos(system: Any, path: str, suffixes: tuple[str, ...]) -> list[dict[str, Any]]:
    if not is_pinned(str(system.unstrip_protocol(path))):
        system.invalidate_cache()  # the earlier listing may be out of date
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
    """Return the entry at a path. fsspec's own `isfile` also returns False if the file system could not be accessed."""
    try:
        found: dict[str, Any] = system.info(path)
    except Exception as exc:  # file systems raise anything for missing entries
        if is_transient(exc):
            raise
        return None
    return found


def _is_wanted(name: str, root: str, suffixes: tuple[str, ...]) -> bool:
    below = name.strip("/").removeprefix(root.strip("/")).strip("/").split("/")
    return not any(part[:1] in (".", "_") for part in below) and (not suffixes or name.lower().endswith(suffixes))


def _remote_found(system: Any, url: str, info: dict[str, Any]) -> _Found:
    if info.get("size") is None:
        raise InputError(
            f"{info['name']!r} (from {url!r}) has no known size. Copy it to a file system that reports sizes"
        )
    return str(system.unstrip_protocol(info["name"])), int(info["size"]), _remote_stamp(info)


def _remote_stamp(info: Mapping[str, Any]) -> int:
    mark = next((str(info[key]) for key in STAMP_KEYS if info.get(key) is not None), "")
    digest = hashlib.blake2b(mark.encode(), digest_size=8).digest() if mark else bytes(8)
    return int.from_bytes(digest, "little", signed=True)


def local_change(status: os.stat_result, listed: Listed) -> str | None:
    """Return how an open file differs from its listed state, or None."""
    if status.st_size != listed.size_bytes:
        return _other_size(status.st_size, listed)
    if status.st_mtime_ns == listed.stamp:
        return None
    was, now = (np.datetime64(stamp, "ns") for stamp in (listed.stamp, status.st_mtime_ns))
    return f"it was last modified at {now} UTC, but at {was} UTC when it was listed"


def remote_change(system: Any, name: str, info: Mapping[str, Any] | None, listed: Listed) -> str | None:
    """Return how a file in a store differs from its listed state, or None.

    Parameters
    ----------
    system : fsspec.AbstractFileSystem
        The store.
    name : str
        Path of the file in it.
    info : mapping, optional
        Current information of the store about the file. By default it is requested.
    listed : Listed
        State of the file when it was listed.
    """
    if info is None:
        system.invalidate_cache(name)
        try:
            info = system.info(name)
        except FileNotFoundError:
            return "it does not exist now, but did when it was listed"
    if info.get("size") is not None and int(info["size"]) != listed.size_bytes:
        return _other_size(int(info["size"]), listed)
    if not listed.stamp or _remote_stamp(info) == listed.stamp:
        return None
    # Some stores write an ETag in quotes for a request about one file, and without when they list many.
    system.invalidate_cache(name)
    in_folder = system.ls(system._parent(name), detail=True)
    same = [entry for entry in in_folder if entry["name"].strip("/") == name.strip("/")]
    if same and all(_remote_stamp(entry) == listed.stamp for entry in same):
        return None
    return "its ETag or modification time is not the one that it had when it was listed"


def _other_size(size_bytes: int, listed: Listed) -> str:
    return f"it has {size_bytes:,} bytes now, but had {listed.size_bytes:,} when it was listed"


def _nearest_remote(system: Any, path: str) -> str:
    parent = path.rstrip("/")
    while "/" in parent:
        parent = parent.rpartition("/")[0]
        if not MAGIC.search(parent) and system.isdir(parent):
            names = [str(name).rstrip("/").rpartition("/")[2] for name in system.ls(parent, detail=False)]
            return f"{parent!r} has {_names(names)}"
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
