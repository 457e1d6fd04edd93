# SPDX-License-Identifier: Apache-2.0
"""Convert records of web crawls to blocks."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pyarrow as pa

from curator_df.io.frames import to_block
from curator_df.io.warc.pages import Page

COLUMNS = pa.schema(
    [
        ("url", pa.large_string()),
        ("date", pa.large_string()),
        ("status", pa.int64()),
        ("content_type", pa.large_string()),
        ("language", pa.large_string()),
        ("text", pa.large_string()),
    ]
)
SKIPPED = pa.field("skipped", pa.large_string())
"""Column of the source, not of the table: the reason why a record is not a page."""
NOTED = pa.field("noted", pa.large_string())
"""Column of the source, not of the table: the note on a page that is counted."""
ROW_BYTES = 500
"""Bytes counted for a row in addition to its text: it consists of Python objects until its block is made."""


class HeldPages:
    """Records that wait until they fill a block."""

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema
        self._addresses: list[int] = []
        self._pages: list[Page] = []
        self.size_bytes = 0

    def __bool__(self) -> bool:
        return bool(self._pages)

    def add(self, address: int, page: Page) -> None:
        """Add a record."""
        self._addresses.append(address)
        self._pages.append(page)
        self.size_bytes += page.text_bytes + ROW_BYTES

    def block(self) -> pd.DataFrame:
        """Return the added records as a block, and release them."""
        pages, addresses = self._pages, np.array(self._addresses, np.int64)
        self._addresses, self._pages, self.size_bytes = [], [], 0
        columns = [
            _texts(pages)
            if field.name == "text"
            else pa.array([getattr(page, field.name) for page in pages], field.type)
            for field in self._schema
        ]
        return to_block(pa.Table.from_arrays(columns, schema=self._schema), addresses)


def _texts(pages: list[Page]) -> pa.Array:
    """Concatenate the texts of pages, removing them from the pages; a record that is not a page has none."""
    offsets = np.concatenate(([0], np.cumsum([page.text_bytes for page in pages]))).astype(np.int64)
    data = b"".join(piece for page in pages for piece in page.pieces)
    for page in pages:
        page.pieces = []
    is_page = pa.array([page.skipped is None for page in pages])
    return pa.Array.from_buffers(
        pa.large_string(), len(pages), [is_page.buffers()[1], pa.py_buffer(offsets), pa.py_buffer(data)]
    )
