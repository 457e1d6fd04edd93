# SPDX-License-Identifier: Apache-2.0
"""Which metrics and signatures have kernels for a device: what an operator asks at its door, without loading any of them."""

from __future__ import annotations

from collections.abc import Sequence

from curator_df.errors import UnsupportedBackendError
from curator_df.kernels.counts import (
    CHARACTER_FEATURES,
    COUNT_DCLM_TEXT,
    COUNT_STOP_WORDS,
    LINE_FEATURES,
    SOURCE_FEATURES,
    STOP_WORDS,
    WORD_FEATURES,
)
from curator_df.kernels.metrics import METRICS, Words, features_of
from curator_df.kernels.minhash_scheme import Scheme

DEVICE_FEATURES = WORD_FEATURES | LINE_FEATURES | CHARACTER_FEATURES | COUNT_DCLM_TEXT | SOURCE_FEATURES
"""Feature bits of the counts that have kernels for a device. The others copy words or hold windows of them as they go."""
DEVICE_METRICS = tuple(name for name in METRICS if not features_of([name]) & ~DEVICE_FEATURES)
"""Metrics that are made of those counts alone."""
_WAY_OUT = "convert the table first with df.to_backend('pandas')"


def require_device_metrics(
    operator: str,
    names: Sequence[str],
    words: Words = "whitespace",
    stop_words: tuple[str, ...] = STOP_WORDS,
    *,
    from_columns: bool = False,
) -> None:
    """Raise `UnsupportedBackendError`, naming the metrics, unless all can be made on a device.

    Examples
    --------
    >>> require_device_metrics("add_metrics", ["word_count", "duplicate_line_ratio"])
    """
    if from_columns:
        raise UnsupportedBackendError(
            f"{operator} reads metrics from columns of pandas blocks alone, and this table has cudf blocks; {_WAY_OUT}"
        )
    missing = [name for name in names if name not in DEVICE_METRICS]
    if missing:
        raise UnsupportedBackendError(
            f"{operator} has no kernel for cuDF blocks that measures {', '.join(missing)}; {_WAY_OUT}"
        )
    if words != "whitespace":
        raise UnsupportedBackendError(
            f"{operator} cuts the texts of cuDF blocks at white space alone, not as words={words!r} says; {_WAY_OUT}"
        )
    if stop_words != STOP_WORDS and features_of(names) & COUNT_STOP_WORDS:
        raise UnsupportedBackendError(
            f"{operator} counts the stop words {', '.join(STOP_WORDS)} in cuDF blocks, and no other list; {_WAY_OUT}"
        )


def require_device_scheme(operator: str, scheme: Scheme) -> None:
    """Raise `UnsupportedBackendError` unless there is a kernel for signatures of a scheme.

    Examples
    --------
    >>> require_device_scheme("add_minhash", Scheme("characters", 24, 20, 13))
    """
    if scheme.ngrams != "characters" or scheme.normalize:
        asked = f"ngrams={scheme.ngrams!r}" + (f", normalize={scheme.normalize!r}" if scheme.normalize else "")
        raise UnsupportedBackendError(
            f"{operator} makes signatures of cuDF blocks of n-grams of characters as they are, and this scheme has {asked}; "
            f"{_WAY_OUT}"
        )
