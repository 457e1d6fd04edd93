# SPDX-License-Identifier: Apache-2.0
"""One run under a budget, in a process of its own: ``-m tests.contracts.budget_run MEMORY INPUT OUTPUT [drop|near|many|tokens]``.

Cleans, filters and writes the input: without its duplicates (or near duplicates), or into four outputs, if asked. Prints what
the receipt says as JSON.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import curator_df as cdf
from curator_df.profiles import DATATROVE_GOPHER_QUALITY
from curator_df.receipts.receipt import Receipt

# Short rows pass too, so that whatever the input most of it reaches the writer.
KEPT = DATATROVE_GOPHER_QUALITY.replace(words="whitespace", gopher_short_doc=10)
SAID = ("rows_read", "rows_written", "measured_bytes", "projected_bytes", "allowed_bytes", "retries")


def is_text(block: Any) -> Any:
    """Keep nearly every row, so that each output has about all of the input to write."""
    return block["text"].str.len() > 0


def write_four(docs: Any, output: str) -> Receipt:
    """Write a table four times in one pass, three times of it through a step of its own; keep two kinds of rejects."""
    tables = {f"{output}/{number}": docs.pipe(cdf.keep_where, is_text, reason=f"empty {number}") for number in range(3)}
    tables[f"{output}/all"] = docs
    kept = {f"{output}/{name}": f"{output}/rejects-{name}" for name in ("0", "all")}
    receipts = cdf.write_many(tables, rejects=kept)
    if len({receipt.rows_written for receipt in receipts.values()}) != 1:
        raise AssertionError({path: receipt.rows_written for path, receipt in receipts.items()})
    return receipts[f"{output}/all"]


def write_tokens(docs: Any, output: str) -> Receipt:
    """Write the tokens of a table, with a tokenizer of bytes and few words, in sequences of whole documents."""
    tokenizer = Path(__file__).with_name("tokenizer.json")
    form = {"format": "numpy", "pack": 2048, "split_documents": False, "merge": True}
    return cdf.write_tokens(docs, output, tokenizer=tokenizer, add_eos=False, pad_id=0, **form)


def main(memory: str, source: str, output: str, how: str = "") -> None:
    """Run once."""
    with cdf.start_cluster(memory=memory, cpus=2):
        docs = cdf.read_jsonl(source).pipe(cdf.normalize_unicode).pipe(cdf.keep_profile, KEPT)
        docs = docs.pipe(cdf.drop_exact_duplicates) if how == "drop" else docs
        docs = docs.pipe(cdf.drop_near_duplicates) if how == "near" else docs
        write = {"many": write_four, "tokens": write_tokens}.get(how, cdf.write_parquet)
        receipt = write(docs, output)
    sys.stdout.write(json.dumps({name: getattr(receipt, name) for name in SAID}) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
