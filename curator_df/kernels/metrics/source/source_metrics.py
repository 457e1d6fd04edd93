# SPDX-License-Identifier: Apache-2.0
"""Metrics of source code that NeMo Curator's filter by file extension uses: line lengths and letters."""

from __future__ import annotations

from curator_df.kernels.metrics.metric import Metric

_FILTER = "nemo_curator 0.9.0, filters/code.py, PerExtensionFilter"
_LINES = "Lines are separated by single line feeds; empty lines count."

SOURCE_METRICS = (
    Metric(
        name="longest_line_length",
        dtype="Int64",
        numerator="longest_source_line",
        denominator=None,
        definition=f"Length of the longest line in code points. {_LINES}",
        source=_FILTER,
        edge_cases="0 for an empty text; a CR is part of its line",
    ),
    Metric(
        name="mean_line_length",
        dtype="Float64",
        numerator="source_line_characters",
        denominator="source_lines",
        definition=f"Mean line length in code points. {_LINES}",
        source=_FILTER,
        edge_cases="0 for an empty text, which is one line; a trailing line feed is followed by an empty line",
    ),
    Metric(
        name="alphanumeric_ratio",
        dtype="Float64",
        numerator="alphanumeric_characters",
        denominator="source_characters",
        definition="Fraction of the code points that are ASCII letters, ASCII digits, line feeds, or one of ? ! , .",
        source=_FILTER,
        edge_cases="0 for an empty text (NeMo divides by zero)",
    ),
    Metric(
        name="letter_ratio",
        dtype="Float64",
        numerator="letters",
        denominator="source_characters",
        definition="Fraction of the code points that are letters (str.isalpha).",
        source=_FILTER,
        edge_cases="1 for an empty text, which NeMo keeps; combining marks do not count as letters",
        undefined=1.0,
    ),
)
