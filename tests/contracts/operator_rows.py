# SPDX-License-Identifier: Apache-2.0
"""The rows that the contracts call every operator on: texts of every kind, missing values, and an index with gaps."""

from __future__ import annotations

import pandas as pd

TEXTS = (
    "to be or not to be",
    None,
    "",
    " \n\t ",
    "short",
    "# a # #",
    "cafÃ© noir\r\n",
    "e\u0301te\u0301 &amp; hiver",
    "漢字 です",
    "שלום עולם טוב",
    "🙂 👩\u200d👩\u200d👧",
    "a\0b \x1b[31mred\x1b[0m",
    "word " * 5_000,
    "to be or not to be",
    "short\n\n\nand more at https://example.org/a now",
    '"Write to **me**@example.org, <b>or</b> call\t+49 30 1234567.\n\nSee our [Privacy Policy](/privacy)"',
)
SCORES = (5, None, 1, 4, 2, 5, 3, 3, 0, 9, None, 7, 8, 5, 6, 1)
ROWS = pd.DataFrame(
    {
        "id": pd.array(range(len(TEXTS)), "Int64"),
        "text": pd.array(TEXTS, "string[pyarrow]"),
        "title": pd.array(["a title"] * len(TEXTS), "string[pyarrow]"),
        "score": pd.array(SCORES, "Float64"),
    },
    index=pd.Index(range(7, 7 + 90 * len(TEXTS), 90), name="address"),
)
"""What the operators are called on: the dtypes and the index are those of a table that was read."""
