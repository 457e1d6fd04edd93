# SPDX-License-Identifier: Apache-2.0
"""Real text that is on any machine with this package installed, gathered without a download.

People wrote it: docstrings and comments of the standard library and of the installed packages, their read-me files,
descriptions and licenses, and the manuals in ``/usr/share`` where there are any. Licenses, headers and vendored copies
make natural near-duplicates. For the demo and for trying things out; not a corpus to train on.

The demo gathers once and keeps the text in the cache folder of the user (`kept_corpus`), until other packages are installed.
"""

from __future__ import annotations

import contextlib
import dataclasses
import gzip
import hashlib
import inspect
import itertools
import json
import os
import re
import shutil
import sys
import sysconfig
import tempfile
import time
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple, Self

import orjson
import zstandard

from curator_df.kernels.compiling.compile_cache import kept_folder

Kind = Literal["docstring", "comments", "documentation", "license", "manual"]
"""Kinds of documents, by the files they come from."""

FILE_OF_KIND: Mapping[Kind, str] = {
    "docstring": "docstrings.jsonl",
    "comments": "comments.jsonl.gz",
    "documentation": "documents.jsonl.zst",
    "license": "documents.jsonl.zst",
    "manual": "manuals.jsonl",
}
"""Where documents of each kind are written: plain, gzip and zstd, as corpora are in practice."""

MIN_DOCUMENT_CHARACTERS = 100
"""Shorter texts ("Return the name.") are left out, since they are not documents."""
ENOUGH_BYTES = 20_000_000
ENOUGH_DOCUMENTS = 2_000
DEMO_BYTES = 28_000_000
"""The most text that the demo gathers: where three of the four files get text, they reach `ENOUGH_BYTES`."""
KEPT_CORPORA = 3
"""Number of corpora that are kept: one for each environment in which the demo ran."""
ABANDONED_SECONDS = 86400.0
"""After this long, an unfinished corpus was left by a process that was killed."""
ABOUT = "corpus.about"
"""File next to the text of the demo that says what was gathered. It is written last."""
PROGRESS_SECONDS = 0.1
"""Time between two calls of ``on_progress``."""
MAX_FILE_BYTES = 2_000_000
"""No more than this is read of a file, after decompression."""
UNREADABLE = (OSError, EOFError, zlib.error)
"""Errors of opening and reading a file of somebody else's; a damaged gzip file raises all three."""

PACKAGE_SUFFIXES = frozenset({".py", ".pyi", ".pyx", ".pxd", ".pxi", ".h", ".hpp", ".md", ".rst", ".txt"})
PYTHON_SUFFIXES = frozenset({".py", ".pyi", ".pyx", ".pxd", ".pxi"})
HEADER_SUFFIXES = frozenset({".h", ".hpp"})
SYSTEM_SUFFIXES = frozenset({"", ".gz", ".md", ".rst", ".txt", ".debian"})
SYSTEM_FOLDERS = {"doc": "/usr/share/doc", "man": "/usr/share/man"}
"""Documentation of the operating system, where it is installed."""
LICENSE_NAME = re.compile(r"(licen[cs]e|copying|copyright|notice)", re.IGNORECASE)

# String literals are matched so that a "#" or a quote inside one is not taken for a comment or another string. A lexer
# reads 40 MB/s where `ast.parse` reads 4, reads Cython too, and finds documentation that is passed to a function.
PYTHON_LEXEME = re.compile(
    r'''"""(?P<double>[^"\\]*(?:(?:\\.|"(?!""))[^"\\]*)*)"""'''
    r"""|'''(?P<single>[^'\\]*(?:(?:\\.|'(?!''))[^'\\]*)*)'''"""
    r"""|"[^"\\\n]*(?:\\.[^"\\\n]*)*"|'[^'\\\n]*(?:\\.[^'\\\n]*)*'|\#(?P<comment>[^\n]*)""",
    re.DOTALL,
)
HEADER_LEXEME = re.compile(
    r"""/\*+(?P<block>.*?)\*/|//+[!<]*(?P<line>[^\n]*)|"[^"\\\n]*(?:\\.[^"\\\n]*)*\"""", re.DOTALL
)
ROFF_HEADING = re.compile(r"^\.(?:SH|SS|B|I|BR|BI|IR|RB|RI|IB)\s+(.*)$")
ROFF_ESCAPE = re.compile(r"\\(?:f(?:\[\w*\]|\(..|.)|s[-+]?\d|\*?\(..|\[\w+\]|[&|^/,:%])|\\\".*")


@dataclass(frozen=True)
class DemoCorpus:
    """Result of `write_demo_corpus`."""

    folder: Path
    """Where the files are."""
    files: tuple[Path, ...]
    """The JSONL files that got text, sorted: one gzip, one zstd, the rest plain."""
    documents: int
    """Number of documents."""
    text_bytes: int
    """Bytes of text in UTF-8, without the JSON around it."""
    documents_by_kind: Mapping[str, int]
    """Number of documents of each kind."""
    skipped_files: int
    """Files that could not be read."""
    seconds: float
    """Wall time it took."""
    is_enough: bool
    """Whether there are at least the requested bytes and documents."""


class Document(NamedTuple):
    """One text, with where it is from."""

    kind: Kind
    source: str
    ordinal: int
    text: str


class Root(NamedTuple):
    """A folder to gather from."""

    label: str
    folder: Path
    suffixes: frozenset[str]


def write_demo_corpus(
    folder: str | os.PathLike[str],
    *,
    min_bytes: int = ENOUGH_BYTES,
    min_documents: int = ENOUGH_DOCUMENTS,
    max_bytes: int = 60_000_000,
    seed: int = 0,
    only_enough: bool = False,
    on_progress: Callable[[int, int], object] | None = None,
) -> DemoCorpus:
    """Gather real text from this machine and write it as JSONL files.

    Parameters
    ----------
    folder : str or path
        Where to write; created if need be. Files of an earlier call in it are replaced.
    min_bytes, min_documents : int
        How much text is enough. Without ``only_enough``, all that is found is written even so.
    max_bytes : int
        The most bytes of text to write, shared equally by the files.
    seed : int
        Sets the order in which files are visited, so which text is taken where there is more than ``max_bytes``.
    only_enough : bool
        Whether to stop as soon as there is enough.
    on_progress : callable, optional
        Called with the documents and the bytes of text that were written so far, about ten times a second.

    Returns
    -------
    DemoCorpus
        The files, their documents and bytes, and whether that is enough.

    Raises
    ------
    OSError
        If the folder cannot be written. Files that cannot be *read* are skipped and counted.

    Notes
    -----
    Each line has ``id`` (unique), ``text``, ``source`` (a file, below one of the roots ``stdlib``, ``purelib``,
    ``platlib``, ``doc`` or ``man``) and ``kind``. The same installation and seed give the same bytes. Documents are
    written when they are found; memory does not grow with their number.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     corpus = write_demo_corpus(folder, max_bytes=200_000)
    >>> corpus.is_enough, corpus.text_bytes <= 200_000
    (False, True)
    """
    started = told = time.monotonic()
    target = Path(folder)
    target.mkdir(parents=True, exist_ok=True)
    documents: Counter[str] = Counter()
    skipped = 0

    def text_bytes() -> int:
        return sum(file.text_bytes for file in files.values())

    def is_enough() -> bool:
        return documents.total() >= min_documents and text_bytes() >= min_bytes

    with contextlib.ExitStack() as stack:
        names = sorted(set(FILE_OF_KIND.values()))
        files = {name: stack.enter_context(JsonlFile(target / name, max_bytes // len(names))) for name in names}
        for root, path in _visits(seed):
            if only_enough and is_enough():
                break
            if on_progress is not None and time.monotonic() - told > PROGRESS_SECONDS:
                told = time.monotonic()
                on_progress(documents.total(), text_bytes())
            if all(files[name].is_full for name in _names_fed_by(root)):
                continue
            try:
                text = read_text(path)
            except UNREADABLE:
                skipped += 1
                continue
            for document in documents_in(text, path, f"{root.label}/{path.relative_to(root.folder).as_posix()}"):
                documents[document.kind] += files[FILE_OF_KIND[document.kind]].add(document)
    return DemoCorpus(
        folder=target,
        files=tuple(file.path for file in files.values() if file.text_bytes),
        documents=documents.total(),
        text_bytes=text_bytes(),
        documents_by_kind=dict(documents),
        skipped_files=skipped,
        seconds=time.monotonic() - started,
        is_enough=is_enough(),
    )


def write_for_demo(folder: Path) -> None:
    """Gather the text of the demo into a folder, and print the documents and bytes so far.

    The demo runs this in a process of its own, and reads what it prints.
    """

    def tell(documents: int, text_bytes: int) -> None:
        sys.stdout.write(f"{documents} {text_bytes}\n")
        sys.stdout.flush()

    corpus = write_demo_corpus(folder, max_bytes=DEMO_BYTES, only_enough=True, on_progress=tell)
    sizes = {path.name: path.stat().st_size for path in corpus.files}
    about = {**dataclasses.asdict(corpus), "folder": "", "files": sizes}
    (folder / ABOUT).write_text(json.dumps(about), encoding="utf-8")


def read_corpus(folder: Path) -> DemoCorpus | None:
    """Return what `write_for_demo` wrote into a folder; None if it is not there, or not whole."""
    try:
        about = json.loads((folder / ABOUT).read_text(encoding="utf-8"))
        files = tuple(folder / name for name in about["files"])
        is_whole = [path.stat().st_size for path in files] == list(about["files"].values())
        return DemoCorpus(**{**about, "folder": folder, "files": files}) if is_whole else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def kept_corpus(gather: Callable[[Path], object]) -> DemoCorpus | None:
    """Return the text of the demo that this user keeps; None where nothing can be kept.

    It is gathered with ``gather`` if there is none yet, or other packages are installed than it comes from.
    """
    home = kept_folder("demo")
    if home is None:
        return None
    kept = home / _origin()
    if (corpus := read_corpus(kept)) is None:
        try:
            home.mkdir(mode=0o700, parents=True, exist_ok=True)
            unfinished = Path(tempfile.mkdtemp(prefix=f"{kept.name}-", suffix=".part", dir=home))
        except OSError:
            return None
        try:
            gather(unfinished)
            if read_corpus(kept) is None:  # and no other process was faster
                shutil.rmtree(kept, ignore_errors=True)
                unfinished.rename(kept)
        finally:
            shutil.rmtree(unfinished, ignore_errors=True)
        corpus = read_corpus(kept)
    with contextlib.suppress(OSError):
        os.utime(kept)
    _forget_others(home)
    return corpus


def _origin() -> str:
    """Return a digest of the origins of the text: this module, Python, and the names (with versions) of installed packages."""
    digest = hashlib.blake2b(Path(__file__).read_bytes(), digest_size=12)
    digest.update(f"{sys.version} {DEMO_BYTES}".encode())
    for root in _roots():
        names = sorted(os.listdir(root.folder))
        digest.update(os.fsencode("\n".join([str(root.folder), *names])))
    return digest.hexdigest()


def _forget_others(home: Path) -> None:
    """Delete the corpora that were used least recently, and unfinished ones that nobody writes any more."""
    found = []
    for path in home.iterdir():
        with contextlib.suppress(OSError):  # another process may have deleted it
            found.append((path.stat().st_mtime, path))
    whole = sorted((both for both in found if both[1].suffix != ".part"), reverse=True)
    abandoned = [
        (used, path) for used, path in found if path.suffix == ".part" and time.time() - used > ABANDONED_SECONDS
    ]
    for _, path in (*whole[KEPT_CORPORA:], *abandoned):
        shutil.rmtree(path, ignore_errors=True)


class JsonlFile:
    """A JSONL file, compressed as its name says, that takes text up to a number of bytes; gone if it got none."""

    def __init__(self, path: Path, max_bytes: int) -> None:
        self.path = path
        self.text_bytes = 0
        self.is_full = False
        self._max_bytes = max_bytes
        self._streams = contextlib.ExitStack()
        self._write = self._open()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._streams.close()
        if not self.text_bytes:
            self.path.unlink()

    def add(self, document: Document) -> bool:
        """Write a document, unless it does not fit any more; tell whether it did."""
        encoded_bytes = len(document.text.encode())
        if self.is_full or self.text_bytes + encoded_bytes > self._max_bytes:
            self.is_full = True
            return False
        row = {
            "id": f"{document.source}#{document.kind}-{document.ordinal}",
            "text": document.text,
            "source": document.source,
            "kind": document.kind,
        }
        self._write(orjson.dumps(row, option=orjson.OPT_APPEND_NEWLINE))
        self.text_bytes += encoded_bytes
        return True

    def _open(self) -> Callable[[bytes], int]:
        plain = self._streams.enter_context(self.path.open("wb"))
        if self.path.suffix == ".gz":
            # Without name and time in its header the same text gives the same file.
            packed = gzip.GzipFile(filename="", mode="wb", compresslevel=4, fileobj=plain, mtime=0)
            return self._streams.enter_context(packed).write
        if self.path.suffix == ".zst":
            compressor = zstandard.ZstdCompressor(level=3)
            return self._streams.enter_context(compressor.stream_writer(plain, closefd=False)).write
        return plain.write


def read_text(path: Path) -> str:
    """Return the first `MAX_FILE_BYTES` of a text file, gzip or not.

    What is not UTF-8 is read as Latin-1, which old manuals are in; a file with NUL characters is taken as empty.
    """
    with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as stream:
        content = stream.read(MAX_FILE_BYTES)
    if b"\0" in content:
        return ""
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError:
        return content.decode("latin-1")


def documents_in(text: str, path: Path, source: str) -> Iterator[Document]:
    """Yield the documents in the text of one file."""
    found: Iterator[tuple[Kind, str]]
    if path.suffix in PYTHON_SUFFIXES:
        found = python_prose(text)
    elif path.suffix in HEADER_SUFFIXES:
        found = iter([("comments", header_comments(text))])
    elif source.startswith("man/"):
        found = iter([("manual", roff_text(text))])
    elif LICENSE_NAME.search(path.name):
        found = iter([("license", text)])
    elif path.name == "METADATA":
        # The long description of a package follows its header fields.
        found = iter([("documentation", text.partition("\n\n")[2])])
    else:
        found = iter([("documentation", text)])
    ordinals: Counter[Kind] = Counter()
    for kind, prose in found:
        if len(prose) >= MIN_DOCUMENT_CHARACTERS:
            ordinals[kind] += 1
            yield Document(kind, source, ordinals[kind], prose)


def python_prose(source: str) -> Iterator[tuple[Kind, str]]:
    r"""Yield each docstring of Python (or Cython) source, then its comments together.

    A docstring here is a triple-quoted string that begins a line, so that documentation handed to a function counts.

    Examples
    --------
    >>> list(python_prose('# Why.\nx = "# no comment"\ndef f():\n    \"\"\"Say it.\"\"\"\n'))
    [('docstring', 'Say it.'), ('comments', 'Why.')]
    """
    comments: list[str] = []
    end_of_last = 0
    for lexeme in PYTHON_LEXEME.finditer(source):
        comment = lexeme["comment"]
        docstring = lexeme["double"] if lexeme["double"] is not None else lexeme["single"]
        if comment is None and docstring is None:
            continue
        before = source[source.rfind("\n", 0, lexeme.start()) + 1 : lexeme.start()].strip()
        if docstring is not None and before in {"", "r", "R"}:
            yield "docstring", inspect.cleandoc(docstring)
        elif comment is not None and not before and not comment.startswith("!"):
            is_new_block = source.count("\n", end_of_last, lexeme.start()) > 1
            comments.append(("\n" if is_new_block and comments else "") + comment.removeprefix(" ").rstrip())
            end_of_last = lexeme.end()
    yield "comments", "\n".join(comments)


def header_comments(source: str) -> str:
    r"""Return the comments of a C or C++ header.

    Examples
    --------
    >>> header_comments('/* One,\n * two. */\nchar *x = "// no";\n/// Three.\n')
    'One,\ntwo.\nThree.'
    """
    lines: list[str] = []
    for lexeme in HEADER_LEXEME.finditer(source):
        comment = lexeme["block"] if lexeme["block"] is not None else lexeme["line"]
        if comment is not None:
            lines.extend(line.strip().removeprefix("*").strip() for line in comment.strip().split("\n"))
    return "\n".join(lines)


def roff_text(source: str) -> str:
    r"""Return the words of a man page without its typesetting.

    Examples
    --------
    >>> roff_text('.TH LS 1\n.SH NAME\nls \\- list \\fBfiles\\fR\n.PP\nIn order.\n')
    'NAME\nls - list files\n\nIn order.'
    """
    lines: list[str] = []
    for line in source.split("\n"):
        if line.startswith((".", "'")):
            # Requests that hold words (headings, bold, italic) are kept; of the others, only that a paragraph ends.
            heading = ROFF_HEADING.match(line)
            words = heading[1].strip('"') if heading else ""
        else:
            words = line
        words = ROFF_ESCAPE.sub("", words).replace("\\-", "-").replace("\\ ", " ").replace("\\e", "\\")
        lines.extend([words] if words or (lines and lines[-1]) else [])
    return "\n".join(lines).strip()


def _roots() -> list[Root]:
    """Return the folders to gather from that are there, each once."""
    installed = sysconfig.get_paths()
    roots = [
        *(Root(label, Path(installed[label]), PACKAGE_SUFFIXES) for label in ("purelib", "platlib", "stdlib")),
        *(Root(label, Path(folder), SYSTEM_SUFFIXES) for label, folder in SYSTEM_FOLDERS.items()),
    ]
    first_with = {root.folder.resolve(): root for root in reversed(roots) if root.folder.is_dir()}
    return [root for root in roots if root in first_with.values()]


def _visits(seed: int) -> Iterator[tuple[Root, Path]]:
    """Yield the files to read, one of each root in turn; in a root in an order that mixes its packages."""
    for found in itertools.zip_longest(*(_in_order(root, seed) for root in _roots())):
        yield from filter(None, found)


def _in_order(root: Root, seed: int) -> list[tuple[Root, Path]]:
    return [(root, path) for path in sorted(_listed(root), key=lambda path: _place(root, path, seed))]


def _place(root: Root, path: Path, seed: int) -> bytes:
    # A hash of the relative path, so that the order is the same wherever the environment lies.
    name = os.fsencode(path.relative_to(root.folder))
    return hashlib.blake2b(name, digest_size=8, key=seed.to_bytes(8, "little", signed=True)).digest() + name


def _listed(root: Root) -> Iterator[Path]:
    """Yield the files of a root that can hold text; links are not followed, other people's manuals are left out."""
    for parent, folders, names in os.walk(root.folder):
        # Installed packages lie inside the standard library's folder, and are roots of their own.
        folders[:] = [name for name in folders if name not in {"site-packages", "dist-packages", "__pycache__"}]
        if root.label == "man" and Path(parent) == root.folder:
            folders[:] = [name for name in folders if name.startswith("man")]
        for name in names:
            path = Path(parent, name)
            if _can_hold_text(root, path) and not path.is_symlink() and path.is_file():
                yield path


def _can_hold_text(root: Root, path: Path) -> bool:
    if path.suffix.lower() in root.suffixes or root.label == "man":
        return True
    return path.name == "METADATA" or LICENSE_NAME.match(path.name) is not None


def _names_fed_by(root: Root) -> set[str]:
    """Return the names of the files that text of this root can go to."""
    if root.label == "man":
        return {FILE_OF_KIND["manual"]}
    if root.label == "doc":
        return {FILE_OF_KIND["documentation"]}
    return {FILE_OF_KIND[kind] for kind in FILE_OF_KIND if kind != "manual"}
