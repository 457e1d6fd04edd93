# SPDX-License-Identifier: Apache-2.0
"""The first records of the sample of a crawl, as a file of their own."""

from __future__ import annotations

import zlib
from pathlib import Path


def first_records(shared_data: Path, folder: Path, records: int) -> str:
    """Write the first records of the crawl sample, each a member of a gzip file, and return the path."""
    content = rest = (shared_data / "crawl_sample.warc.gz").read_bytes()
    for _ in range(records):
        member = zlib.decompressobj(wbits=31)
        member.decompress(rest)
        rest = member.unused_data
    path = folder / "crawl.warc.gz"
    path.write_bytes(content[: len(content) - len(rest)])
    return str(path)
