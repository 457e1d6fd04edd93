# SPDX-License-Identifier: Apache-2.0
"""All errors that curator_df raises on purpose; they have one root, `CuratorError`.

::

    CuratorError
    ├── ParameterError (ValueError)         an argument is invalid
    ├── ColumnError (KeyError)              a column is missing, or would be overwritten
    ├── SchemaError (TypeError)             a column has different types in different files
    ├── InputError (FileNotFoundError)      no file matches, or a file vanished
    ├── InputChangedError (InputError)      an input file was changed, appended to or replaced after it was listed
    ├── CorruptFileError (OSError)          a compressed or Parquet file is truncated or damaged
    ├── RemoteFileError (OSError)           a remote store kept failing; nothing is damaged, the run can be resumed
    ├── BadRowError (ValueError)            a row cannot be read; names file, line and byte offset
    ├── OversizeRowError (MemoryError)      one row needs more memory than is available; names file and line
    ├── OversizePageError (OversizeRowError) a page of a Parquet file does, which can only be read whole
    ├── BudgetError (MemoryError)           the plan does not fit the allowed bytes; nothing was started
    ├── DiskFullError (OSError)             no space left; the run can be resumed
    ├── OutputExistsError (FileExistsError) the output folder is not empty
    ├── OutputInUseError (OutputExistsError) another run is writing to it now
    ├── OutputChangedError (RuntimeError)   what a run has written was renamed, changed or deleted before the run ended
    ├── ResumeError (RuntimeError)          the journal there belongs to another input or program
    ├── OperatorError (RuntimeError)        a user's function raised; names the step and the rows
    ├── WorkerLostError (RuntimeError)      workers kept dying on one range
    ├── SchedulerLostError (RuntimeError)   the connection to the scheduler was lost; the run can be resumed
    ├── RowCountError (RuntimeError)        not all rows read are accounted for
    ├── BarrierError (RuntimeError)         a pending drop was computed without `checkpoint`
    ├── NoClusterError (RuntimeError)       a run was requested and no cluster is running
    ├── KernelNotCompiledError (RuntimeError) a worker may not compile a kernel that nobody has compiled before
    ├── MissingExtraError (ImportError)     a package of an extra is not installed; names the command that installs it
    ├── ExpressionError (TypeError)         a Dask expression that cannot be run block by block
    └── UnsupportedBackendError (TypeError) an operator cannot work on this kind of block

`exit_code` gives the exit code of a process that ends with an error, for the command line and for scripts.
"""

from __future__ import annotations

import errno
import linecache
import os
import sysconfig
import traceback
from collections.abc import Mapping
from typing import Self

_LIBRARIES = (os.path.dirname(__file__), *{sysconfig.get_path(name) for name in ("purelib", "platlib", "stdlib")})
"""Folders whose frames a user did not write."""


def _is_library(filename: str) -> bool:
    return filename.startswith(_LIBRARIES) or filename.startswith("<frozen")


class CuratorError(Exception):
    """Root of all errors that curator_df raises on purpose."""

    def _render_traceback_(self) -> list[str]:
        """Return the lines that IPython and Jupyter show: the user's own line, and the message, without frames of libraries."""
        lines = [f"{type(self).__name__}: {self}"]
        cause = self.__cause__
        if cause is not None:
            said = str(cause).strip().split("\n", maxsplit=1)[0]
            lines.append(f"Caused by {type(cause).__name__}{': ' * bool(said)}{said}")
        own = [frame for frame in traceback.extract_tb(self.__traceback__) if not _is_library(frame.filename)]
        if own:
            cell = linecache.getline(own[-1].filename, own[-1].lineno or 0).strip() or own[-1].line
            lines.insert(0, f"----> {own[-1].lineno} {cell}")
        return lines


class ParameterError(CuratorError, ValueError):
    """An argument is invalid."""


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
    """An input file is not the one that was listed: it was changed, appended to or replaced before it was read to its end."""


class CorruptFileError(CuratorError, OSError):
    """A compressed or Parquet file, or a file between two stages, is truncated, damaged or missing.

    Attributes
    ----------
    path : str
        The file, if one stage wrote it for the next: it can be written again.
    """

    path: str = ""


class RemoteFileError(CuratorError, OSError):
    """A remote store was busy or unreachable on every attempt. Nothing is damaged, and the run can be resumed."""


class BadRowError(CuratorError, ValueError):
    """A row cannot be read. The message names file, line and byte offset."""


# MemoryError comes first in these two: the other way round they cannot be unpickled (their __new__ is not the base's).
class OversizeRowError(MemoryError, CuratorError):
    """One row needs more memory than the step may use.

    Attributes
    ----------
    path : str
        File that holds the row.
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
    """A page of a Parquet file, which can only be read whole, needs more memory than the step may use.

    Attributes
    ----------
    path : str
        The file.
    line, offset : int
        Number of the first row of the page's row group, from 1 and from 0.
    row_bytes : int
        Bytes of a row that would take as much memory.
    column : str
        Column of the page.
    page_bytes : int
        Bytes of the page when decompressed.
    needed_bytes : int
        What is held while this and the other columns' pages are read.
    """

    column: str = ""
    page_bytes: int = 0
    needed_bytes: int = 0

    @classmethod
    def of(cls, path: str, row: int, column: str, page_bytes: int, *, needed_bytes: int, row_bytes: int) -> Self:
        """Return the error of a page in the row group that begins with this row, from 0."""
        error = cls(
            f"{path!r}, row group from row {row + 1:,}: a page of the column {column!r} has {page_bytes:,} bytes, and "
            f"{needed_bytes:,} are held while it is read: more than the memory allowed"
        )
        error.path, error.line, error.offset, error.row_bytes = path, row + 1, row, row_bytes
        error.column, error.page_bytes, error.needed_bytes = column, page_bytes, needed_bytes
        return error

    def that_would_fit(self, had_bytes: int, memory: int) -> OversizePageError:
        """Return the same error, with what a task alone on the node had, and with what it would fit."""
        error = OversizePageError(
            f"{self}. Alone on the node a task has {had_bytes:,} bytes for this and its blocks. Allow memory={memory:_} and "
            "resume, or write the file again with smaller pages (in pyarrow, write_batch_size=64)"
        )
        vars(error).update(vars(self))
        return error


class BudgetError(MemoryError, CuratorError):
    """The plan does not fit the allowed bytes. Nothing was started."""


class DiskFullError(CuratorError, OSError):
    """No space is left on the output's or the spill directory's file system."""


class OutputExistsError(CuratorError, FileExistsError):
    """The output folder is not empty."""


class OutputInUseError(OutputExistsError):
    """Another run is writing to the output folder. The same call is right when that one has ended."""


class OutputChangedError(CuratorError, RuntimeError):
    """Files or folders that a run has written were renamed, changed or deleted before the run ended. It can be resumed."""


class ResumeError(CuratorError, RuntimeError):
    """The journal in the output folder belongs to another input or program."""


class OperatorError(CuratorError, RuntimeError):
    """A user's function raised an exception, or returned what it must not. The message names the step and the rows."""


class WorkerLostError(CuratorError, RuntimeError):
    """Workers kept dying on one range."""


class SchedulerLostError(CuratorError, RuntimeError):
    """The connection to the scheduler was lost: it ended, or is unreachable. The run can be resumed."""


class RowCountError(CuratorError, RuntimeError):
    """Not all rows read are accounted for: a defect here or in an operator, which is never silent."""


class BarrierError(CuratorError, RuntimeError):
    """A pending drop was computed without `checkpoint` or `write_*`."""


class NoClusterError(CuratorError, RuntimeError):
    """A run was requested and no cluster is running."""


class ExpressionError(CuratorError, TypeError):
    """A Dask expression that cannot be run block by block."""


class UnsupportedBackendError(CuratorError, TypeError):
    """An operator cannot work on blocks of this backend."""


class KernelNotCompiledError(CuratorError, RuntimeError):
    """A compiled function is needed in a process that may not compile it, because the compiler needs memory of its own."""


class MissingExtraError(CuratorError, ImportError):
    """A package that an optional feature needs is not installed. The message has the command that installs it."""


MAY_PASS = 1
"""Exit code of an error that may pass: the same command can be retried unchanged, with ``on_existing="resume"``."""
PERMANENT = 2
"""Exit code of an error that every attempt meets until something is changed, and of a wrong option."""
UNEXPECTED = os.EX_SOFTWARE
"""Exit code (70) of an exception that curator_df does not raise on purpose: a defect, in curator_df or in a library."""
INTERRUPTED = 130
"""Exit code after Ctrl-C."""
PIPE_CLOSED = 141
"""Exit code when the reader of the standard output went away, as in ``curator-df explain corpus/ | head -1``."""

EXIT_CODES: Mapping[type[BaseException], int] = {
    CuratorError: MAY_PASS,
    ParameterError: PERMANENT,
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
    WorkerLostError: MAY_PASS,
    SchedulerLostError: MAY_PASS,
    RowCountError: PERMANENT,
    BarrierError: PERMANENT,
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
"""Exit code by class. A subclass that is not listed has the code of the nearest class that is."""
_PERMANENT_ERRNOS = (errno.EROFS, errno.ENAMETOOLONG, errno.ELOOP, errno.EINVAL)


def exit_code(exc: BaseException) -> int:
    """Return the exit code of a process that ends with this error.

    Parameters
    ----------
    exc : BaseException
        Any exception, also one of Python or of another library.

    Returns
    -------
    int
        1 if the same command may succeed when it is retried, 2 if something has to be changed first, 70 if the exception is
        unexpected, 130 after Ctrl-C, 141 if the reader of the standard output went away.

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
