# SPDX-License-Identifier: Apache-2.0
"""Conversion between bytes and sizes as users write them: ``"256MB"`` is 256,000,000, as in Dask."""

from __future__ import annotations

from dask.utils import parse_bytes

from curator_df.errors import ParameterError


def read_size(parameter: str, value: str | int) -> int:
    """Convert a size that the user wrote to bytes.

    Examples
    --------
    >>> read_size("blocksize", "256MB")
    256000000
    >>> read_size("blocksize", "lots")
    Traceback (most recent call last):
    ...
    curator_df.errors.ParameterError: blocksize='lots' is not a number of bytes; write it like '256MB' or 256_000_000
    """
    refusal = ParameterError(f"{parameter}={value!r} is not a number of bytes; write it like '256MB' or 256_000_000")
    if isinstance(value, bool) or (isinstance(value, str) and not any(letter.isdigit() for letter in value)):
        raise refusal  # to Dask, '' is one byte, and 'MB' a million
    try:
        size_bytes = int(parse_bytes(value))
    except (ValueError, TypeError, AttributeError, OverflowError) as exc:
        raise refusal from exc
    if size_bytes < 1:
        raise ParameterError(f"{parameter}={value!r} must be more than zero bytes")
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
