# SPDX-License-Identifier: Apache-2.0
"""One run under a budget, in a process of its own: ``-m tests.contracts.budget_run MEMORY INPUT OUTPUT [drop]``.

Cleans, filters and writes the input, without its duplicates if asked, and prints what the receipt says as JSON.
"""

from __future__ import annotations

import json
import sys

import curator_df as cdf
from curator_df.profiles import DATATROVE_GOPHER_QUALITY

# Short rows pass too, so that whatever the input most of it reaches the writer.
KEPT = DATATROVE_GOPHER_QUALITY.replace(gopher_short_doc=10)
SAID = ("rows_read", "rows_written", "measured_bytes", "projected_bytes", "allowed_bytes", "retries")


def main(memory: str, source: str, output: str, *drop: str) -> None:
    """Run once."""
    with cdf.start_cluster(memory=memory, cpus=2):
        docs = cdf.read_jsonl(source).pipe(cdf.normalize_unicode).pipe(cdf.keep_profile, KEPT)
        docs = docs.pipe(cdf.drop_exact_duplicates) if drop else docs
        receipt = cdf.write_parquet(docs, output)
    sys.stdout.write(json.dumps({name: getattr(receipt, name) for name in SAID}) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
