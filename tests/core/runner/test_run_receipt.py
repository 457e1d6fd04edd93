# SPDX-License-Identifier: Apache-2.0
"""What a receipt says was set: with reasons, and as arguments that give the same run again."""

import dataclasses
import datetime as dt
import inspect
import json
import socket

import pytest

import curator_df as cdf
from curator_df.core.planning.branches import Branch, fork
from curator_df.core.planning.lowering import lower
from curator_df.core.planning.plan import plan_fork
from curator_df.core.runner.run_receipt import new_receipt
from curator_df.files.storage import Folder
from curator_df.io.output.files import FileSink
from curator_df.io.output.formats import JsonlFormat
from curator_df.memory.budget import choose_layout
from curator_df.receipts.earlier import earlier_runs
from curator_df.receipts.report import report_page
from tests.core.runner.fake_client import inline_cluster


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
    assert list(plain.settings) == ["layout", "blocks", "resume"]
    assert list(plain.arguments) == ["memory", "cpus", "blocksize", "on_error", "on_oom"]
    layout = dataclasses.replace(layout, device_bytes=8_000_000_000)
    on_gpus = new_receipt(plan_fork(fork([branch]), layout), fork([branch]), branch, 1, "raise", "retry")
    assert on_gpus.arguments == plain.arguments | {"gpus": 2, "device_memory": 8_000_000_000}
    assert on_gpus.settings["gpus"] == "one for each worker process, with a budget of 8.00 GB"


def test_what_is_assumed_of_a_function_and_where_the_peak_ends_stands_in_the_settings(tmp_path):
    docs = cdf.read_jsonl(rows_in(tmp_path / "in.jsonl"))
    docs = docs.map_partitions(lambda block: block, meta=docs._meta)
    branch = Branch(lower(docs), FileSink(Folder(str(tmp_path / "out")), JsonlFormat("none"), 1), None)
    planned = plan_fork(fork([branch]), choose_layout(4_000_000_000, cpus=2))
    receipt = new_receipt(planned, fork([branch]), branch, 1, "raise", "retry")
    assert receipt.settings["assumed"] == (
        "1.5 x block for map_partitions(<lambda>); the peak may reach 3.88 GB, where allocations fail"
    )


def test_a_receipt_says_when_where_and_with_which_version(tmp_path):
    (tmp_path / "in.jsonl").write_text('{"text": "a"}\n')
    before = dt.datetime.now(dt.UTC).replace(microsecond=0, tzinfo=None).isoformat()
    with inline_cluster(memory="4GB", cpus=2):
        receipt = cdf.write_parquet(cdf.read_jsonl(tmp_path / "in.jsonl"), tmp_path / "out")
    assert (receipt.version, receipt.host) == (cdf.__version__, socket.gethostname())
    assert before <= receipt.started.removesuffix("Z") <= dt.datetime.now(dt.UTC).replace(tzinfo=None).isoformat()
    line = f"{receipt.started[:10]} {receipt.started[11:16]} UTC on {receipt.host}, curator_df {cdf.__version__}"
    assert line in " ".join(str(receipt).split())
    assert line in report_page(receipt)
    assert ("run", line) in receipt.summary()
    assert cdf.read_receipt(tmp_path / "out") == receipt


def test_the_funnel_reaches_back_over_checkpoints_and_shuffles(tmp_path):
    rows = [{"id": number, "text": f"row {number // 2}"} for number in range(40)]
    (tmp_path / "in.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    with inline_cluster(memory="4GB", cpus=2):
        docs = cdf.read_jsonl(tmp_path / "in.jsonl")
        first = cdf.checkpoint(docs.pipe(cdf.drop_exact_duplicates), tmp_path / "first")
        second = cdf.shuffle_rows(first.pipe(cdf.keep_where, "id >= 10"), tmp_path / "second")
        receipt = cdf.write_parquet(second.pipe(cdf.keep_where, "id < 30"), tmp_path / "out")
    assert [(run.rows_read, run.rows_written) for run in receipt.earlier] == [(40, 20), (20, 15), (15, 15)]
    funnel = receipt.funnel()
    assert funnel.columns.tolist() == ["output", "step", "rows_in", "rows_dropped", "rows_out", "share"]
    assert funnel[["step", "rows_in", "rows_dropped", "rows_out", "share"]].to_numpy().tolist() == [
        ["drop_exact_duplicates", 40, 20, 20, 0.5],
        ["keep_where", 20, 5, 15, 0.375],
        ["keep_where", 15, 5, 10, 0.25],
    ]
    assert f"earlier 40 read, 20 written, 20 dropped: {tmp_path}/first" in " ".join(str(receipt).split())
    assert "From the first input to this output" in report_page(receipt)
    assert cdf.read_receipt(tmp_path / "out") == receipt


@pytest.mark.parametrize("content", ["", "{", "[]", '{"output": 3}'])
def test_a_strange_receipt_beside_the_input_is_no_reason_to_stop(tmp_path, content):
    (tmp_path / "_curator").mkdir()
    (tmp_path / "_curator" / "receipt.json").write_text(content)
    (tmp_path / "in.jsonl").write_text('{"text": "a"}\n')
    assert earlier_runs(lower(cdf.read_jsonl(tmp_path / "in.jsonl")).source) == []
