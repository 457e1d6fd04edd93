# SPDX-License-Identifier: Apache-2.0
"""The metrics of source code that NeMo Curator's filter by file extension looks at: the length of lines, and letters."""

from __future__ import annotations

from curator_df.kernels.metric import Metric

_FILTER = "nemo_curator 0.9.0, filters/code.py, PerExtensionFilter"
_LINES = "Lines stand between single line feeds; empty ones count."

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
        definition=f"Mean length of the lines in code points. {_LINES}",
        source=_FILTER,
        edge_cases="0 for an empty text, which is one line; after a line feed at the end there is an empty line",
    ),
    Metric(
        name="alphanumeric_ratio",
        dtype="Float64",
        numerator="alphanumeric_characters",
        denominator="source_characters",
        definition="Share of the code points that are ASCII letters, ASCII digits, line feeds, or one of ? ! , .",
        source=_FILTER,
        edge_cases="0 for an empty text (NeMo divides by zero)",
    ),
    Metric(
        name="letter_ratio",
        dtype="Float64",
        numerator="letters",
        denominator="source_characters",
        definition="Share of the code points that are letters (str.isalpha).",
        source=_FILTER,
        edge_cases="1 for an empty text, which NeMo keeps; combining marks are no letters",
        undefined=1.0,
    ),
)
