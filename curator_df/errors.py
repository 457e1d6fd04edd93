# SPDX-License-Identifier: Apache-2.0
"""All errors that curator_df raises on purpose; they have one root, `CuratorError`.

::

    CuratorError
    ├── ParameterError (ValueError)         an argument is invalid
    ├── RecipeError (ValueError)            a recipe file is invalid, or a run cannot be written as one; names file and line
    ├── ColumnError (KeyError)              a column is missing, or would be overwritten
    ├── SchemaError (TypeError)             a column has different types in different files
    ├── InputError (FileNotFoundError)      no file matches, or a file vanished
    ├── InputChangedError (InputError)      an input file was modified or replaced after it was listed
    ├── CorruptFileError (OSError)          a compressed or Parquet file is truncated or damaged
    ├── RemoteFileError (OSError)           a remote store kept failing; nothing is damaged, the run can be resumed
    ├── BadRowError (ValueError)            a row cannot be read; names file, line and byte offset
    ├── OversizeRowError (MemoryError)      one row needs more memory than is available; names file and line
    ├── OversizePageError (OversizeRowError) one Parquet page, which must be read whole, needs too much
    ├── BudgetError (MemoryError)           the plan does not fit the memory budget; nothing was started
    ├── DiskFullError (OSError)             no space left; the run can be resumed
    ├── OutputExistsError (FileExistsError) the output folder is not empty
    ├── OutputInUseError (OutputExistsError) another run is writing to it now
    ├── OutputChangedError (RuntimeError)   output was renamed, changed or deleted while its run was in progress
    ├── ResumeError (RuntimeError)          the output's journal belongs to another input or program
    ├── OperatorError (RuntimeError)        a user's function raised; names the step and the rows
    ├── StepMemoryError (MemoryError)       what a step started or shared would have passed the number; names the step
    ├── WorkerLostError (RuntimeError)      workers were repeatedly killed by one input split
    ├── SchedulerLostError (RuntimeError)   the connection to the scheduler was lost; the run can be resumed
    ├── RowCountError (RuntimeError)        not all rows read are accounted for
    ├── PendingError (RuntimeError)         a step that needs all rows was computed outside a cluster
    ├── NoClusterError (RuntimeError)       a run was requested and no cluster is running
    ├── KernelNotCompiledError (RuntimeError) a worker may not compile a kernel that nobody has compiled before
    ├── MissingExtraError (ImportError)     a package of an extra is not installed; names the command that installs it
    ├── ExpressionError (TypeError)         a Dask expression cannot be run block by block
    └── UnsupportedBackendError (TypeError) an operator does not support this kind of block

`exit_code` returns the exit code for an error, for the command line and for scripts.
"""

from __future__ import annotations

import errno
import linecache
import os
import sys
import sysconfig
import traceback
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Self, TypeVar

from curator_df.suggestions import no_such_name

Caught = TypeVar("Caught", bound=BaseException)
MOST_LINES = 10
"""Lines of an error in a notebook."""
MOST_REMARKS = 4
"""Lines after the message, such as what it was caused by."""
MOST_INNER_FRAMES = 3
"""Lines of the user's functions, the innermost, after the line of the cell."""
LONGEST_LINE = 1_000
"""Characters of a line of an error in a notebook: values of a table may be in it."""
_NO_META = "Metadata inference failed"
"""Begins the message of Dask when a function raises while Dask looks what it returns."""
_HOW_TO_GIVE_META = (
    "Dask called the function on two made-up rows, one of them with missing values, to learn what it returns. To skip that, say "
    "what it returns with meta=: an empty table such as df._meta, or ('name', 'int64') for a column."
)
_LIBRARIES = (os.path.dirname(__file__), *{sysconfig.get_path(name) for name in ("purelib", "platlib", "stdlib")})
"""Folders with code that users did not write."""


def is_library(filename: str) -> bool:
    """Tell whether a source file is of a library, Python or this package, and not the user's."""
    return filename.startswith((*_LIBRARIES, "<frozen")) or filename.endswith(
        (".pyx", ".pxi")
    )  # of Cython: no whole path


def outside_level() -> int:
    """Return the ``stacklevel`` of a warning that shows the user's own line, however deep in this package it is raised."""
    level, frame = 1, sys._getframe(1)
    while frame.f_back is not None and is_library(frame.f_code.co_filename):
        level, frame = level + 1, frame.f_back
    return level


def type_and_text(exc: BaseException) -> str:
    """Return the class and the message of an error as a part of a sentence: without a full stop, or a colon before nothing.

    Examples
    --------
    >>> type_and_text(ValueError("it is too long.")), type_and_text(MemoryError())
    ('ValueError: it is too long', 'MemoryError')
    """
    return f"{type(exc).__name__}: {exc}".rstrip(".: ")


def without_frames(exc: Caught) -> Caught:
    """Return an error of another library whose traceback, and those of its causes, are removed: each is one line.

    The clients of stores raise several errors from each other with dozens of frames each, which hide the message of ours.

    Examples
    --------
    >>> try:
    ...     open("/no/such/file")
    ... except OSError as exc:
    ...     cause = without_frames(exc)
    >>> cause.__traceback__ is None
    True
    """
    waiting: list[BaseException | None] = [exc]
    seen: set[int] = set()
    while waiting:
        one = waiting.pop()
        if one is not None and id(one) not in seen:
            seen.add(id(one))
            one.__traceback__ = None
            waiting += [one.__cause__, one.__context__]
    return exc


class CuratorError(Exception):
    """Root of all errors that curator_df raises on purpose."""

    def _render_traceback_(self) -> list[str]:
        """Return the lines that IPython and Jupyter show."""
        return notebook_lines(self)


def notebook_lines(exc: BaseException) -> list[str]:
    """Return an error in a few lines for a notebook: the user's own lines, the message, and what it came from.

    Parameters
    ----------
    exc : BaseException
        Any error. Frames of libraries are left out.

    Returns
    -------
    list of str
        At most `MOST_LINES` lines.
    """
    cause, message, tracebacks = exc.__cause__, f"{type(exc).__name__}: {exc}".removesuffix(": "), [exc.__traceback__]
    remarks = list(getattr(exc, "__notes__", ()))
    if cause is not None and str(exc).startswith(_NO_META):
        message, remarks = f"{type(cause).__name__}: {cause}", [_HOW_TO_GIVE_META]
        tracebacks.append(cause.__traceback__)
    elif cause is not None and repr(cause) != repr(exc):
        said = str(cause).strip().split("\n", maxsplit=1)[0]
        remarks.insert(0, f"Caused by {type(cause).__name__}{': ' * bool(said)}{said}")
    frames = _own_frames(tracebacks)
    after = [line for remark in remarks for line in remark.strip().split("\n")][:MOST_REMARKS]
    said_lines = message.rstrip().split("\n")[: MOST_LINES - len(frames) - len(after)]
    return [*frames, *(_shortened(line) for line in said_lines + after)]


def _own_frames(tracebacks: Sequence[TracebackType | None]) -> list[str]:
    """Return the user's lines, the outermost with an arrow, as IPython shows it."""
    own = [frame for tb in tracebacks for frame in traceback.extract_tb(tb) if not is_library(frame.filename)]
    if not own:
        return []
    texts = [linecache.getline(frame.filename, frame.lineno or 0).strip() or frame.line or "" for frame in own]
    inner = [
        f"in {frame.name}, line {frame.lineno}{': ' * bool(text)}{text}"
        for frame, text in zip(own[1:], texts[1:], strict=True)
    ]
    return [_shortened(line) for line in (f"----> {own[0].lineno} {texts[0]}", *inner[-MOST_INNER_FRAMES:])]


def _shortened(line: str) -> str:
    return line if len(line) <= LONGEST_LINE else f"{line[:LONGEST_LINE]}..."


class ParameterError(CuratorError, ValueError):
    """An argument is invalid."""


class RecipeError(CuratorError, ValueError):
    """A recipe file is invalid, or a run cannot be written as one. The message names file, line and key.

    Attributes
    ----------
    path : str
        File of the recipe; empty if the error is not in a file.
    line : int
        Line in the file, from 1; 0 if the error is not in a line.
    key : str
        Path of the value in the recipe, such as ``"steps.keep_language.min_score"``.
    """

    path: str = ""
    line: int = 0
    key: str = ""

    @classmethod
    def at(cls, path: str, line: int, key: str, said: str) -> Self:
        """Create the error for a place in a file."""
        place = f"{path}:{line}" if line else path
        error = cls(": ".join(part for part in (place, key, said) if part))
        error.path, error.line, error.key = path, line, key
        return error


class ColumnError(CuratorError, KeyError):
    """A column is missing, or a new one would overwrite it."""

    def __str__(self) -> str:
        # KeyError shows repr(args[0]), which would put the whole message in quotes.
        return str(self.args[0]) if self.args else ""


class SchemaError(CuratorError, TypeError):
    """A column has different types in different files."""


class InputError(CuratorError, FileNotFoundError):
    """No input file matches, or a listed file no longer exists."""


class InputChangedError(InputError):
    """An input file is not the one that was listed: it was modified or replaced before it was read completely."""


class CorruptFileError(CuratorError, OSError):
    """A compressed or Parquet file, or a file between two stages, is truncated, damaged or missing.

    Attributes
    ----------
    path : str
        The file, if it is an intermediate file of the run, which can be written again.
    """

    path: str = ""


class RemoteFileError(CuratorError, OSError):
    """A remote store was busy or unreachable on every attempt. Nothing is damaged, and the run can be resumed."""


class BadRowError(CuratorError, ValueError):
    """A row cannot be read. The message names file, line and byte offset."""


# MemoryError comes first in these two: otherwise they cannot be unpickled, because their __new__ is not that of the base.
class OversizeRowError(MemoryError, CuratorError):
    """One row needs more memory than the step may use.

    Attributes
    ----------
    path : str
        File that contains the row.
    line : int
        Line (or row) number, from 1.
    offset : int
        Byte offset of the row in the (decompressed) file.
    row_bytes : int
        Length of the row in bytes.
    """

    path: str = ""
    line: int = 0
    offset: int = 0
    row_bytes: int = 0


class OversizePageError(OversizeRowError):
    """A page of a Parquet file, which must be read whole, needs more memory than the step may use.

    Attributes
    ----------
    path : str
        File that contains the page.
    line, offset : int
        Number of the first row of the page's row group, from 1 and from 0.
    row_bytes : int
        Size of a row that would need the same memory, in bytes.
    column : str
        Column of the page.
    page_bytes : int
        Decompressed size of the page in bytes.
    needed_bytes : int
        Memory in use while this page and those of the other columns are read, in bytes.
    """

    column: str = ""
    page_bytes: int = 0
    needed_bytes: int = 0

    @classmethod
    def of(cls, path: str, row: int, column: str, page_bytes: int, *, needed_bytes: int, row_bytes: int) -> Self:
        """Create the error for a page in the row group that begins with this row, counted from 0."""
        error = cls(
            f"{path!r}, row group from row {row + 1:,}: a page of the column {column!r} has {page_bytes:,} bytes, and "
            f"{needed_bytes:,} are in use while it is read, more than the memory budget allows"
        )
        error.path, error.line, error.offset, error.row_bytes = path, row + 1, row, row_bytes
        error.column, error.page_bytes, error.needed_bytes = column, page_bytes, needed_bytes
        return error

    def that_would_fit(self, had_bytes: int, memory: str) -> OversizePageError:
        """Return a copy with the memory of a task that runs exclusively, and the budget that would suffice, as users type it."""
        error = OversizePageError(
            f"{self}. A task that runs exclusively has {had_bytes:,} bytes for page and blocks. Use memory={memory} and "
            "resume, or write the file again with smaller pages (in pyarrow, write_batch_size=64)"
        )
        vars(error).update(vars(self))
        return error


class BudgetError(MemoryError, CuratorError):
    """The plan does not fit the memory budget. Nothing was started."""


class DiskFullError(CuratorError, OSError):
    """The file system of the output, the spill directory or the standard output has no space left."""


class OutputExistsError(CuratorError, FileExistsError):
    """The output folder is not empty."""


class OutputInUseError(OutputExistsError):
    """Another run is writing to the output folder. The same call will succeed when that run has ended."""


class OutputChangedError(CuratorError, RuntimeError):
    """Files or folders of the output were renamed, changed or deleted while the run was in progress. It can be resumed."""


class ResumeError(CuratorError, RuntimeError):
    """The journal in the output folder belongs to another input or program."""


class OperatorError(CuratorError, RuntimeError):
    """A user's function raised an exception, or returned what it must not. The message names the step and the rows.

    Attributes
    ----------
    may_be_memory : bool
        Whether the step had started processes, which may have failed because memory was short.
    """

    may_be_memory: bool = False


class StepMemoryError(MemoryError, CuratorError):
    """A step started processes, shared memory or took memory with which all processes together would have passed the number.

    What took it was ended. The message names the step, what it took and what was free.
    """


class WorkerLostError(CuratorError, RuntimeError):
    """Workers were repeatedly killed by one input split."""


class SchedulerLostError(CuratorError, RuntimeError):
    """The connection to the scheduler was lost because it ended or is unreachable. The run can be resumed."""


class RowCountError(CuratorError, RuntimeError):
    """Not all rows that were read are accounted for. This is a defect in curator_df or in an operator and is always reported."""


class PendingError(CuratorError, RuntimeError):
    """A step that needs a full pass over the rows was computed block by block, as Dask does outside a cluster of curator_df."""


class NoClusterError(CuratorError, RuntimeError):
    """A run was requested and no cluster is running."""


class ExpressionError(CuratorError, TypeError):
    """A Dask expression cannot be run block by block."""


class UnsupportedBackendError(CuratorError, TypeError):
    """An operator does not support blocks of this backend."""


class KernelNotCompiledError(CuratorError, RuntimeError):
    """A compiled function is needed in a process that may not compile it, because the compiler needs memory of its own."""


class MissingExtraError(CuratorError, ImportError):
    """A package that an optional feature needs is not installed. The message gives the command that installs it."""


MAY_PASS = 1
"""Exit code of an error that may be temporary: retry the same command with ``on_existing="resume"``."""
PERMANENT = 2
"""Exit code of a wrong option, and of an error that recurs until something is changed."""
UNEXPECTED = os.EX_SOFTWARE
"""Exit code (70) of an exception that curator_df does not raise on purpose: a defect in curator_df or in a library."""
INTERRUPTED = 130
"""Exit code after Ctrl-C."""
PIPE_CLOSED = 141
"""Exit code when the reader of the standard output exits, as in ``curator-df explain corpus/ | head -1``."""

EXIT_CODES: Mapping[type[BaseException], int] = {
    CuratorError: MAY_PASS,
    ParameterError: PERMANENT,
    RecipeError: PERMANENT,
    ColumnError: PERMANENT,
    SchemaError: PERMANENT,
    InputError: MAY_PASS,
    InputChangedError: PERMANENT,
    CorruptFileError: PERMANENT,
    RemoteFileError: MAY_PASS,
    BadRowError: PERMANENT,
    OversizeRowError: PERMANENT,
    OversizePageError: PERMANENT,
    BudgetError: PERMANENT,
    DiskFullError: MAY_PASS,
    OutputExistsError: PERMANENT,
    OutputInUseError: MAY_PASS,
    OutputChangedError: MAY_PASS,
    ResumeError: PERMANENT,
    OperatorError: PERMANENT,
    StepMemoryError: PERMANENT,
    WorkerLostError: MAY_PASS,
    SchedulerLostError: MAY_PASS,
    RowCountError: PERMANENT,
    PendingError: PERMANENT,
    NoClusterError: MAY_PASS,
    KernelNotCompiledError: PERMANENT,
    MissingExtraError: PERMANENT,
    ExpressionError: PERMANENT,
    UnsupportedBackendError: PERMANENT,
    KeyboardInterrupt: INTERRUPTED,
    BrokenPipeError: PIPE_CLOSED,
    MemoryError: PERMANENT,
    ImportError: PERMANENT,
    FileNotFoundError: PERMANENT,
    FileExistsError: PERMANENT,
    NotADirectoryError: PERMANENT,
    IsADirectoryError: PERMANENT,
    PermissionError: PERMANENT,
    OSError: MAY_PASS,
}
"""Exit code by class. A class that is not listed has the code of its nearest listed base class."""
_PERMANENT_ERRNOS = (errno.EROFS, errno.ENAMETOOLONG, errno.ELOOP, errno.EINVAL)


def exit_code(exc: BaseException) -> int:
    """Return the exit code of a process that ends with this error.

    Parameters
    ----------
    exc : BaseException
        Any exception, including those of Python and of other libraries.

    Returns
    -------
    int
        1 if the same command may succeed when it is retried, 2 if something must be changed first, 70 if the exception is
        unexpected, 130 after Ctrl-C, 141 if the reader of the standard output exited.

    Examples
    --------
    >>> exit_code(DiskFullError("no space left")), exit_code(ParameterError("cpus=0")), exit_code(ZeroDivisionError())
    (1, 2, 70)

    In a script that a batch system runs::

        try:
            cdf.write_parquet(docs, "clean/", on_existing="resume")
        except Exception as exc:
            print(exc, file=sys.stderr)
            sys.exit(cdf.errors.exit_code(exc))
    """
    for kind in type(exc).__mro__:
        if kind in EXIT_CODES:
            is_path = kind is OSError and isinstance(exc, OSError) and exc.errno in _PERMANENT_ERRNOS
            return PERMANENT if is_path else EXIT_CODES[kind]
    return UNEXPECTED


if not TYPE_CHECKING:  # with it, a type checker would take any name for a public one
    __getattr__ = no_such_name(
        __name__, ["exit_code", *(one.__name__ for one in EXIT_CODES if one.__module__ == __name__)]
    )
