# SPDX-License-Identifier: Apache-2.0
"""Every error that curator_df raises on purpose; one root, `CuratorError`.

::

    CuratorError
    ├── ParameterError (ValueError)         an argument is outside what is allowed
    ├── ColumnError (KeyError)              a column is missing, or would be overwritten
    ├── SchemaError (TypeError)             a column changes its type between files
    ├── InputError (FileNotFoundError)      no file matches, or a file vanished
    ├── CorruptFileError (OSError)          a compressed or Parquet file is truncated or damaged
    ├── RemoteFileError (OSError)           a remote store kept failing; nothing is damaged, the run can be resumed
    ├── BadRowError (ValueError)            a row cannot be read; names file, line and byte offset
    ├── OversizeRowError (MemoryError)      one row needs more memory than there is; names file and line
    ├── BudgetError (MemoryError)           the plan does not fit the allowed bytes; nothing was started
    ├── DiskFullError (OSError)             no space left; the run can be resumed
    ├── OutputExistsError (FileExistsError) the output has something in it already
    ├── ResumeError (RuntimeError)          the journal there belongs to other input or another program
    ├── OperatorError (RuntimeError)        a user's function raised; names the step and the rows
    ├── WorkerLostError (RuntimeError)      workers kept dying on one range
    ├── SchedulerLostError (RuntimeError)   the connection to the scheduler broke off; the run can be resumed
    ├── RowCountError (RuntimeError)        rows read are not all accounted for
    ├── BarrierError (RuntimeError)         a pending drop was computed without `checkpoint`
    ├── NoClusterError (RuntimeError)       a run was asked for and no cluster is running
    ├── ExpressionError (TypeError)         a Dask expression that cannot be run block by block
    └── UnsupportedBackendError (TypeError) an operator cannot work on this kind of block
"""


class CuratorError(Exception):
    """Root of every error that curator_df raises on purpose."""


class ParameterError(CuratorError, ValueError):
    """An argument is outside what is allowed."""


class ColumnError(CuratorError, KeyError):
    """A column is missing, or a new one would overwrite it."""

    def __str__(self) -> str:
        # KeyError shows repr(args[0]), which would put the whole message in quotes.
        return str(self.args[0]) if self.args else ""


class SchemaError(CuratorError, TypeError):
    """A column changes its type between files."""


class InputError(CuratorError, FileNotFoundError):
    """No input file matches, or a listed file is not there any more."""


class CorruptFileError(CuratorError, OSError):
    """A compressed or Parquet file, or a file between two stages, is truncated, damaged or gone.

    Attributes
    ----------
    path : str
        The file, where it is one that a stage wrote for the next: it can be written again.
    """

    path: str = ""


class RemoteFileError(CuratorError, OSError):
    """A remote store was busy or could not be reached, at every try. Nothing is damaged, and the run can be resumed."""


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


class BudgetError(MemoryError, CuratorError):
    """The plan does not fit the allowed bytes. Nothing was started."""


class DiskFullError(CuratorError, OSError):
    """No space is left on the output's or the spill directory's file system."""


class OutputExistsError(CuratorError, FileExistsError):
    """The output directory has something in it already."""


class ResumeError(CuratorError, RuntimeError):
    """The journal in the output belongs to other input or another program."""


class OperatorError(CuratorError, RuntimeError):
    """A user's function raised an exception, or returned what it must not. The message names the step and the rows."""


class WorkerLostError(CuratorError, RuntimeError):
    """Workers kept dying on one range."""


class SchedulerLostError(CuratorError, RuntimeError):
    """The connection to the scheduler broke off: it ended, or cannot be reached. The run can be resumed."""


class RowCountError(CuratorError, RuntimeError):
    """Rows read are not all accounted for: a defect here or in an operator, never silent."""


class BarrierError(CuratorError, RuntimeError):
    """A pending drop was computed without `checkpoint` or `write_*`."""


class NoClusterError(CuratorError, RuntimeError):
    """A run was asked for and no cluster is running."""


class ExpressionError(CuratorError, TypeError):
    """A Dask expression that cannot be run block by block."""


class UnsupportedBackendError(CuratorError, TypeError):
    """An operator cannot work on blocks of this backend."""
