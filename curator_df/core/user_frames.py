# SPDX-License-Identifier: Apache-2.0
"""The user's own lines in an error that comes from a worker.

A worker keeps of a traceback the frames that a user wrote (`keep_user_frames`), as plain values that travel with the error. The
client makes a traceback of them (`with_user_frames`). Functions that were pickled by value have lost the name of their file on
the way; the client finds it in the functions that it sent.
"""

from __future__ import annotations

import contextlib
import functools
import traceback
import types
from collections.abc import Iterator, Mapping
from typing import Any

from curator_df.errors import is_library

ATTRIBUTE = "user_frames"
"""Attribute of an error: file, line and function of each frame, outermost first."""
KEY = "task_key"
"""Attribute of an error: Dask's key of the task, as text."""
MOST_FRAMES = 8
"""Frames that are kept, the innermost; a recursion has thousands."""
NO_COLUMNS = 0x80 | 13 << 3
"""Begins an entry of CPython's table of lines that has a line and no columns."""
MOST_VALUES = 100_000
"""Values that are looked at in search of functions."""
HELD_OUTSIDE: tuple[Any, ...] = (UnicodeDecodeError, UnicodeEncodeError, UnicodeTranslateError, SyntaxError)
"""Errors of Python that hold their words outside their arguments."""

Frame = tuple[str, int, str]


def keep_user_frames(exc: BaseException, key: str = "", cause: BaseException | None = None) -> None:
    """Note in an error which lines of the user raised it, and let go of its frames, which hold whole blocks.

    The innermost frame is kept even if it is of a library, where that was called by none of the user's. With ``cause``, an error
    that ``exc`` describes in its own words, the frames are those of the cause, and a library's are left out.
    """
    frames: list[Frame] = []
    every: list[Frame] = []
    one: BaseException | None = cause or exc
    while one is not None:
        found = [(each.filename, each.lineno or 0, each.name) for each in traceback.extract_tb(one.__traceback__)]
        frames = [frame for frame in found if not is_library(frame[0])] + frames
        every = every or found
        traceback.clear_frames(one.__traceback__)
        one.__traceback__ = None
        one = one.__cause__ or one.__context__
    kept = frames[-MOST_FRAMES:] or ([] if cause else every[-1:])
    if not getattr(exc, ATTRIBUTE, None):
        setattr(exc, ATTRIBUTE, kept)
        setattr(exc, KEY, key)


def with_user_frames(exc: BaseException, sent: Any) -> BaseException:
    """Return an error from a worker with a traceback of the user's lines.

    Parameters
    ----------
    exc : BaseException
        The error, as `keep_user_frames` left it.
    sent : Any
        What was sent to the worker: an expression of Dask, or a job. Functions are searched in it.
    """
    _restore_words(exc)
    frames, _ = vars(exc).pop(ATTRIBUTE, None), vars(exc).pop(KEY, None)
    if not frames:
        return exc
    codes = list(codes_in(sent)) if any(_is_nameless(frame[0]) for frame in frames) else []
    return exc.with_traceback(_as_traceback([_located(frame, codes) for frame in frames]))


def _restore_words(exc: BaseException) -> None:
    """Give errors that hold their words outside their arguments, and lost them on the way, these words again.

    tblib, with which Dask pickles errors, makes some without a call of their ``__init__``: their text is empty.
    """
    one: BaseException | None = exc
    while one is not None:
        kind = next((kind for kind in HELD_OUTSIDE if isinstance(one, kind)), None)
        if kind is not None and one.args:
            with contextlib.suppress(TypeError):  # a class of the user's with other arguments
                kind.__init__(one, *one.args)
        one = one.__cause__ or one.__context__


def _is_nameless(filename: str) -> bool:
    return filename.startswith("<")


def _located(frame: Frame, codes: list[types.CodeType]) -> Frame:
    """Return a frame with the file of the function that has its name and its line, where one was sent."""
    filename, line, name = frame
    for code in codes if _is_nameless(filename) else ():
        if (
            code.co_name == name
            and not _is_nameless(code.co_filename)
            and any(line == one for _, _, one in code.co_lines())
        ):
            return code.co_filename, line, name
    return frame


def codes_in(sent: Any) -> Iterator[types.CodeType]:
    """Yield the code of the functions of a user in a value, and of those that they call by name."""
    waiting, seen = [sent], dict[int, Any]()
    while waiting and len(seen) < MOST_VALUES:
        value = waiting.pop()
        if id(value) in seen:
            continue
        seen[id(value)] = value  # held, so that its number is not given to another
        if isinstance(value, types.CodeType):
            if not is_library(value.co_filename):
                yield value
                waiting += value.co_consts
        else:
            waiting += _inside(value)


def _inside(value: Any) -> list[Any]:
    """Return the values in a value in which functions may be."""
    match value:
        case None | str() | bytes() | int() | float() | types.ModuleType():
            inside: list[Any] = []
        case types.FunctionType():
            inside = _inside_function(value)
        case types.MethodType():
            inside = [value.__func__, value.__self__]
        case functools.partial():
            inside = [value.func, *value.args, *value.keywords.values()]
        case Mapping():
            inside = list(value.values())
        case list() | tuple() | set() | frozenset():
            inside = list(value)
        case type():
            inside = list(vars(value).values()) if _is_users(value) else []
        case _ if type(value).__module__.partition(".")[0] in ("curator_df", "dask") or _is_users(type(value)):
            slots = [getattr(value, name, None) for name in getattr(type(value), "__slots__", ())]
            inside = [*slots, *getattr(value, "__dict__", {}).values(), type(value)]
        case _:
            inside = []
    return inside


def _inside_function(function: types.FunctionType) -> list[Any]:
    cells = [cell.cell_contents for cell in function.__closure__ or () if _is_filled(cell)]
    if is_library(function.__code__.co_filename):
        return cells
    called = [function.__globals__.get(name) for name in function.__code__.co_names]
    return [function.__code__, *cells, *(one for one in called if isinstance(one, types.FunctionType | type))]


def _is_filled(cell: types.CellType) -> bool:
    try:
        return cell.cell_contents is not cell
    except ValueError:  # of a variable that was deleted, or not yet set
        return False


def _is_users(of_class: type) -> bool:
    methods = [one for one in vars(of_class).values() if isinstance(one, types.FunctionType)]
    return any(not is_library(method.__code__.co_filename) for method in methods)


def _as_traceback(frames: list[Frame]) -> types.TracebackType | None:
    made: types.TracebackType | None = None
    for filename, line, name in reversed(frames):
        code = compile("raise LookupError", filename, "exec")
        units = len(code.co_code) // 2
        # Lines without columns, which nobody knows; Python would otherwise mark a part of the user's line.
        table = b"".join(bytes((NO_COLUMNS | min(8, units - unit) - 1, 0)) for unit in range(0, units, 8))
        code = code.replace(co_name=name, co_qualname=name, co_firstlineno=line, co_linetable=table)
        try:
            exec(code, {"__name__": name, "__file__": filename})  # noqa: S102 - code of our own, for its frame
        except LookupError as exc:
            stub = exc.__traceback__.tb_next if exc.__traceback__ is not None else None
            if stub is not None:
                made = types.TracebackType(made, stub.tb_frame, stub.tb_lasti, line)
    return made
