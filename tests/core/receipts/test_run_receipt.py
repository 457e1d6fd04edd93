# SPDX-License-Identifier: Apache-2.0
"""What a receipt says was set: with reasons, and as arguments that give the same run again."""

import dataclasses
import inspect
import json

import curator_df as cdf
from curator_df.core.files.storage import Folder
from curator_df.core.memory.budget import choose_layout
from curator_df.core.planning.branches import Branch, fork
from curator_df.core.planning.lowering import lower
from curator_df.core.planning.plan import plan_fork
from curator_df.core.receipts.run_receipt import new_receipt
from curator_df.io.output.files import FileSink
from curator_df.io.output.write import JsonlFormat


def rows_in(path):
    path.write_text("".join(json.dumps({"id": n, "text": "a few words"}) + "\n" for n in range(100)) + "no row\n")
    return path


def run(source, output, *, arguments):
    """Start a cluster, read and write with what of the arguments each of the three takes, and return the receipt."""

    def taken(function):
        return {name: arguments[name] for name in inspect.signature(function).parameters if name in arguments}

    with cdf.start_cluster(**taken(cdf.start_cluster)):
        docs = cdf.read_jsonl(source, **taken(cdf.read_jsonl))
        return cdf.write_parquet(docs, output, **taken(cdf.write_parquet))


def test_the_arguments_of_a_receipt_give_the_same_run_again(tmp_path):
    given = {"memory": "2GB", "cpus": 1, "recycle_after": 1000}
    given |= {"on_bad_rows": "quarantine", "on_error": "quarantine", "on_oom": "raise"}
    source = rows_in(tmp_path / "in.jsonl")
    first = run(source, tmp_path / "first", arguments=given)
    block_bytes = first.arguments["blocksize"]  # by what this process holds
    assert first.arguments == given | {"memory": 2_000_000_000, "blocksize": block_bytes}
    assert first.settings["on_oom"] == "raise: the first input split that runs out of memory stops the run"
    assert first.settings["on_error"] == "quarantine: rows on which a function raises are quarantined"
    assert first.settings["on_bad_rows"] == "quarantine: rows that cannot be read are quarantined"
    second = run(source, tmp_path / "second", arguments=first.arguments)
    assert second.arguments == first.arguments
    assert (second.rows_written, second.rows_quarantined) == (first.rows_written, first.rows_quarantined) == (100, 1)
    assert cdf.read_receipt(tmp_path / "second").arguments == first.arguments


def test_what_is_so_by_default_needs_no_reason_and_gpus_are_arguments_too(tmp_path):
    docs = cdf.read_jsonl(rows_in(tmp_path / "in.jsonl"))
    branch = Branch(lower(docs), FileSink(Folder(str(tmp_path / "out")), JsonlFormat("none"), 1), None)
    layout = choose_layout(4_000_000_000, cpus=2)
    plain = new_receipt(plan_fork(fork([branch]), layout), fork([branch]), branch, 1, "raise", "retry")
    assert list(plain.settings) == ["layout", "blocks", "cut"]
    assert list(plain.arguments) == ["memory", "cpus", "blocksize", "on_error", "on_oom"]
    layout = dataclasses.replace(layout, device_bytes=8_000_000_000)
    on_gpus = new_receipt(plan_fork(fork([branch]), layout), fork([branch]), branch, 1, "raise", "retry")
    assert on_gpus.arguments == plain.arguments | {"gpus": 2, "device_memory": 8_000_000_000}
    assert on_gpus.settings["gpus"] == "one for each worker process, with a budget of 8.00 GB"
