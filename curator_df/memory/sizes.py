# SPDX-License-Identifier: Apache-2.0
"""Conversion between bytes and sizes as users write them: ``"256MB"`` is 256,000,000, as in Dask."""

from __future__ import annotations

import math
from decimal import Decimal

from dask.utils import parse_bytes

from curator_df.errors import ParameterError

MOST_BYTES = 10**18
"""Largest number of bytes of an argument; sums and products of larger ones would exceed 64 bits."""


def read_size(parameter: str, value: str | int) -> int:
    """Convert a size that the user wrote to bytes.

    Examples
    --------
    >>> read_size("blocksize", "256MB")
    256000000
    >>> read_size("blocksize", "lots")
    Traceback (most recent call last):
    ...
    curator_df.errors.ParameterError: blocksize='lots' is not a number of bytes. Write it like '256MB' or 256_000_000
    """
    refusal = ParameterError(f"{parameter}={value!r} is not a number of bytes. Write it like '256MB' or 256_000_000")
    if isinstance(value, bool) or (isinstance(value, str) and not any(letter.isdigit() for letter in value)):
        raise refusal  # to Dask, '' is one byte, and 'MB' a million
    try:
        size_bytes = int(parse_bytes(value))
        if isinstance(value, str):  # Dask multiplies floats and truncates: '2.07MB' would be 2,069,999 bytes
            text = value.replace(" ", "")
            end = max(place for place, letter in enumerate(text) if letter.isdigit()) + 1
            size_bytes = int(Decimal(text[:end]) * int(parse_bytes(f"1{text[end:]}")))
    except (ValueError, TypeError, AttributeError, ArithmeticError) as exc:
        raise refusal from exc
    if size_bytes < 1:
        raise ParameterError(f"{parameter}={value!r} must be more than zero bytes")
    if size_bytes > MOST_BYTES:
        raise ParameterError(
            f"{parameter}={value!r} is more than {MOST_BYTES // 10**15:,} PB, which no machine has. Use a smaller size, "
            f"such as {parameter}='16GB'"
        )
    return size_bytes


def show_size(size_bytes: float) -> str:
    """Format bytes with the unit that users write.

    Examples
    --------
    >>> show_size(1_500_000_000), show_size(640_000), show_size(12)
    ('1.50 GB', '640 kB', '12 B')
    """
    for unit, scale, digits in (("TB", 1e12, 2), ("GB", 1e9, 2), ("MB", 1e6, 0), ("kB", 1e3, 0)):
        if size_bytes >= scale:
            return f"{size_bytes / scale:,.{digits}f} {unit}"
    return f"{size_bytes:,.0f} B"


def show_sizes(one: float, other: float) -> tuple[str, str]:
    """Format two sizes that a message compares: with every byte if they look the same otherwise.

    Examples
    --------
    >>> show_sizes(2_000_000, 1_000_000), show_sizes(100_200_000, 100_100_000)
    (('2 MB', '1 MB'), ('100,200,000 bytes', '100,100,000 bytes'))
    """
    shown = show_size(one), show_size(other)
    return (f"{one:,.0f} bytes", f"{other:,.0f} bytes") if shown[0] == shown[1] else shown


def rounded_up(size_bytes: float) -> int:
    """Return the smallest size not below a number of bytes that can be typed with three digits.

    Examples
    --------
    >>> rounded_up(530_875_450), rounded_up(3_153_814_437), rounded_up(999_400_000)
    (531000000, 3160000000, 1000000000)
    """
    return _rounded(math.ceil(size_bytes), up=True)


def size_to_type(size_bytes: float, *, up: bool = True) -> str:
    """Format a size that a message recommends, with three digits, as the user can type it.

    By default it is rounded up, for memory that has to suffice; ``up=False`` rounds down, for blocks that have to fit.

    Examples
    --------
    >>> size_to_type(530_875_450), size_to_type(3_153_814_437), size_to_type(48_260_869, up=False)
    ("'531MB'", "'3.16GB'", "'48.2MB'")
    """
    rounded = _rounded(math.ceil(size_bytes) if up else math.floor(size_bytes), up=up)
    unit, scale = _unit_of(rounded)
    whole, part = divmod(rounded, scale)
    fraction = f".{part * 1000 // scale:03d}".rstrip("0").rstrip(".")
    return f"'{whole}{fraction}{unit}'"


def _unit_of(size_bytes: int) -> tuple[str, int]:
    units = (("TB", 10**12), ("GB", 10**9), ("MB", 10**6), ("kB", 10**3))
    return next(((unit, scale) for unit, scale in units if size_bytes >= scale), ("B", 1))


def _rounded(size_bytes: int, *, up: bool) -> int:
    step: int = 10 ** max(len(str(size_bytes)) - 3, 0)
    return -(-size_bytes // step) * step if up else size_bytes // step * step


def show_count(count: int, noun: str) -> str:
    """Show a number of things, with the noun in its plural where it needs one.

    Examples
    --------
    >>> show_count(1, "file"), show_count(2_000, "row"), show_count(0, "match")
    ('1 file', '2,000 rows', '0 matches')
    """
    plural = noun + ("es" if noun.endswith(("s", "x", "ch", "sh")) else "s")
    return f"{count:,} {noun if count == 1 else plural}"


def show_float(number: float) -> str:
    """Format a number for a table: with one decimal place, or from 1,000 on with none.

    Examples
    --------
    >>> show_float(0.25), show_float(51_964.4)
    ('0.2', '51,964')
    """
    return f"{number:,.0f}" if abs(number) >= 1000 else f"{number:,.1f}"


def show_duration(seconds: float) -> str:
    """Format a duration with the units that users expect.

    Examples
    --------
    >>> show_duration(3.25), show_duration(130), show_duration(7_500)
    ('3.2 s', '2 min 10 s', '2 h 5 min')
    """
    if seconds < 120:
        return f"{seconds:,.1f} s"
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours:,} h {minutes} min" if hours else f"{minutes} min {rest} s"
