# SPDX-License-Identifier: Apache-2.0
"""A run that writes tokens is killed with a real signal, and leaves the same bytes when it is resumed."""

import os
import signal

import pytest

from tests.faults.runs import PATIENCE_SECONDS, ROWS, finish, wait_for_ranges

pytest.importorskip("tokenizers", reason="needs the tokenizers extra (tokenizers is not installed)")

TOKENS = """
import json, os, sys, time
import curator_df as cdf
from curator_df.core.runner import run

run.SMALL_RANGE_BYTES = 100_000  # many ranges from a small corpus

def slow(block):
    time.sleep(float(os.environ.get("SLEEP", "0.05")))
    return block.id % 5 != 0

if __name__ == "__main__":
    source, target, memory, form, on_existing = sys.argv[1:6]
    docs = cdf.read_jsonl(source, blocksize=os.environ.get("BLOCK", "50kB"))
    options = {"pack": 64, "split_documents": False} if form == "numpy" else {}
    with cdf.start_cluster(memory=memory, cpus=2):
        receipt = cdf.write_tokens(
            docs.curate.keep_where(slow), target, tokenizer=os.environ["TOKENIZER"], format=form, eos_token=7,
            merge=form in ("megatron", "numpy"), on_existing=on_existing, **options,
        )
    print(json.dumps(receipt.to_json()))
"""


def content(out):
    """Return the bytes of all files but the journal."""
    files = (path for path in out.rglob("*") if path.is_file() and "_curator" not in path.parts)
    return {str(path.relative_to(out)): path.read_bytes() for path in files}


@pytest.mark.proof  # killed merges, and files that do not depend on blocks, are in tests/models/tokens/test_write.py
@pytest.mark.timeout(3 * PATIENCE_SECONDS)
@pytest.mark.parametrize("form", ["megatron", "numpy", "arrow", "mds"])
def test_a_killed_run_leaves_the_same_tokens_when_it_is_resumed(start, corpus, tmp_path, form):
    from tests.contracts.operator_cases import TOKENIZER

    script, out, undisturbed = tmp_path / "tokens.py", tmp_path / "out", tmp_path / "undisturbed"
    script.write_text(TOKENS)
    given = {"step": form, "TOKENIZER": TOKENIZER}
    finish(start(script, corpus, undisturbed, memory="900MB", SLEEP="0", **given))
    process = start(script, corpus, out, memory="900MB", **given)
    wait_for_ranges(out, 3, process)
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    assert not (out / "merged").exists()
    receipt = finish(start(script, corpus, out, memory="1GB", on_existing="resume", SLEEP="0", BLOCK="20kB", **given))
    assert receipt["ranges_resumed"] >= 3
    assert receipt["rows_read"] == ROWS
    assert content(out) == content(undisturbed)
    assert len(content(out)) > 8
