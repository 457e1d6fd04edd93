# SPDX-License-Identifier: Apache-2.0
"""Runs whose blocks go to a GPU and back, on doubles of cuDF's blocks: the files, rejects and receipts of a run on the CPU."""

import json
import re

import pandas as pd
import pytest

import curator_df as cdf
from curator_df import errors
from curator_df.io import device_transfer
from tests.core.runner.fake_client import inline_cluster
from tests.gpu.chains import CHAINS, FAILING, TEXTS, grouped, rewritten, write_input
from tests.gpu.scripts import run_script


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    write_input(folder / "input")
    run_script("simulated_runs", folder, simulated=True)
    return folder


@pytest.fixture(scope="module")
def on_cpu(tmp_path_factory):
    """The same chains with blocks of pandas."""
    home = tmp_path_factory.mktemp("cpu")
    write_input(home / "input")
    with inline_cluster(memory="6GB", cpus=1):
        docs = cdf.read_jsonl(home / "input")
        for name, chain in CHAINS.items():
            cdf.write_parquet(chain(docs), home / name, rejects=home / f"{name}-rejects")
        cdf.write_jsonl(FAILING["quarantine"](docs), home / "quarantine", on_error="quarantine")
        with pytest.warns(UserWarning, match="1 row did not fit into the memory"):
            cdf.write_jsonl(FAILING["halved"](docs), home / "halved", on_error="quarantine")
        rewritten(docs, home)
        grouped(docs, home)
    return home


def rows(path):
    return pd.read_parquet(path, dtype_backend="pyarrow").convert_dtypes(dtype_backend="numpy_nullable")


def steps(path, *, without):
    """Return what the steps of a run did, as its receipt has it, without some."""
    return [
        (step.name, step.rows_in, step.rows_out, step.dropped, step.counters)
        for step in cdf.read_receipt(path).steps
        if step.name not in without
    ]


MOVES = ("to_backend(cudf)", "to_backend(pandas)")


@pytest.mark.parametrize("name", CHAINS)
def test_files_are_those_of_a_run_on_the_cpu(folder, on_cpu, name):
    found, expected = rows(folder / name), rows(on_cpu / name)
    assert len(expected) > 0
    pd.testing.assert_frame_equal(found, expected)


@pytest.mark.parametrize("name", CHAINS)
def test_rejects_and_counts_are_those_of_a_run_on_the_cpu(folder, on_cpu, name):
    assert steps(folder / name, without=MOVES) == steps(on_cpu / name, without=MOVES)
    if cdf.read_receipt(on_cpu / name).rows_dropped:
        found, expected = (rows(home / f"{name}-rejects") for home in (folder, on_cpu))
        assert [path.startswith(str(folder)) for path in found["reject_file"]] == [True] * len(expected)
        assert _names(found["reject_matched_file"]) == _names(expected["reject_matched_file"])
        columns = expected.columns.drop(["reject_file", "reject_matched_file"])
        pd.testing.assert_frame_equal(found[columns], expected[columns])


def _names(paths):
    return [None if pd.isna(path) else path.rpartition("/")[2] for path in paths]


def test_each_crossing_is_a_step_of_the_receipt(folder):
    names = [step.name for step in cdf.read_receipt(folder / "keep_where").steps]
    assert names == ["read", "to_backend(cudf)", "keep_where", "to_backend(pandas)", "write"]
    fro = [step.name for step in cdf.read_receipt(folder / "to_and_fro").steps]
    assert fro[2:5] == ["keep_where", "to_backend(pandas)", "normalize_whitespace"]


@pytest.mark.parametrize("name", FAILING)
def test_rows_are_set_aside_as_on_the_cpu(folder, on_cpu, name):
    def aside(home):
        (path,) = (home / name / "_quarantine").iterdir()
        records = [json.loads(line) for line in path.read_text().splitlines()]
        return [{**record, "file": record["file"].rpartition("/")[2]} for record in records]

    assert aside(folder) == aside(on_cpu)
    (record,) = aside(folder)
    assert json.loads(record["raw"])["id"] == {"quarantine": 13, "halved": 9}[name]
    receipt = cdf.read_receipt(folder / name)
    assert (receipt.rows_written, receipt.rows_quarantined) == (2 * len(TEXTS) - 1, 1)


def test_branches_share_the_way_to_the_gpu(folder):
    receipts = [cdf.read_receipt(folder / name) for name in ("many-a", "many-b")]
    assert [len(rows(folder / name)) for name in ("many-a", "many-b")] == [22, 18]
    assert receipts[1].settings["shared"] == "read, to_backend(cudf): once for 2 outputs"


@pytest.mark.parametrize("name", ["split", "shuffled", "kept"])
def test_tables_that_are_written_and_read_back_are_those_of_the_cpu(folder, on_cpu, name):
    found, expected = (pd.read_pickle(home / f"{name}.pickle") for home in (folder, on_cpu))
    assert len(expected) > 0
    pd.testing.assert_frame_equal(found, expected)


@pytest.mark.parametrize("name", ["drop_first", "drop_near"])
def test_groups_with_ids_are_those_of_the_cpu_and_can_be_dropped(folder, on_cpu, name):
    found, expected = (
        pd.read_pickle(home / f"{name}.pickle").drop(columns=["file", "matched_file"]) for home in (folder, on_cpu)
    )
    assert len(expected) >= 2 * len(TEXTS)
    pd.testing.assert_frame_equal(found, expected)
    pd.testing.assert_frame_equal(rows(folder / f"{name}_found"), rows(folder / name))


def test_the_plan_and_the_receipt_say_what_a_gpu_needs(folder):
    results = json.loads((folder / "results.json").read_text())
    # The block, what keep_where makes of it, and slack; and what a task holds whatever its block.
    expected = int((1 + 1.2 + 0.5) * 16_000_000) + 32_000_000
    assert results["device_bytes"] == expected
    assert (
        "gpu     75 MB estimated peak on each (assumed: 2.7 x 16 MB + 32 MB for each of 1 tasks), 8.00 GB budget"
        in results["plan"]
    )
    assert "keep_where on the GPU: 1.2 x block (assumed)" in results["plan"]
    receipt = cdf.read_receipt(folder / "keep_where")
    assert receipt.measured_device_bytes == 123_456
    assert receipt.device_spilled_bytes == 7_000
    assert ("gpu", "123 kB actual peak, 91 MB estimated peak on each; 7 kB moved to the host") in receipt.summary()
    assert any(text.startswith("cuDF moved 7 kB from GPUs to the host and back") for text in receipt.advice)


def test_what_does_not_fit_or_has_no_way_is_refused(folder):
    said = json.loads((folder / "results.json").read_text())["refusals"]
    for (kind, message), (error, expected) in zip(
        said,
        [
            ("UnsupportedBackendError", r"normalize_whitespace works on pandas blocks.*to_backend\(df, 'pandas'\)"),
            ("SchemaError", r"the column 'tags' has the type .*list<.*Leave it out \(columns="),
            (
                "BudgetError",
                r"blocks of 1 MB do not fit on a GPU.*only 33 MB of each GPU may be used.*device_memory='34.7MB'",
            ),
            ("BudgetError", r"to_backend\(cudf\).*these workers have no GPU\. .*start_cluster\(gpus='auto'\)"),
        ],
        strict=True,
    ):
        assert kind == error
        assert re.search(expected, message), message


def test_without_a_gpu_or_its_packages_a_reader_says_so_at_once(monkeypatch, tmp_path):
    names = ("csv", "delta", "iceberg", "jsonl", "parquet", "text_files", "warc")
    readers = [getattr(cdf, f"read_{name}") for name in names]
    nowhere = tmp_path / "nothing"  # the reader does not come to look
    monkeypatch.setattr(device_transfer, "REQUIRED", ("cudf_that_nobody_has",))
    for reader in readers:
        said = (
            rf"{reader.__name__} with backend='cudf' needs the package cudf-that-nobody-has, which is not installed\."
        )
        with pytest.raises(errors.MissingExtraError, match=said):
            reader(nowhere, backend="cudf")
        with pytest.raises(errors.ParameterError, match=r"backend='gpu' is not one of 'pandas', 'cudf'"):
            reader(nowhere, backend="gpu")
    monkeypatch.setattr(device_transfer, "REQUIRED", ())
    monkeypatch.setattr(device_transfer, "read_gpus", tuple)
    with pytest.raises(errors.UnsupportedBackendError, match="the driver finds no GPU on this machine"):
        cdf.read_jsonl(nowhere, backend="cudf")
    monkeypatch.setattr(device_transfer, "read_gpus", lambda: (object(),))
    monkeypatch.setattr(device_transfer, "visible_gpus", tuple)
    with pytest.raises(errors.UnsupportedBackendError, match="CUDA_VISIBLE_DEVICES hides all GPUs"):
        cdf.read_jsonl(nowhere, backend="cudf")


def test_dasks_own_moves_are_refused_in_a_run(tmp_path):
    write_input(tmp_path / "input")
    docs = cdf.read_jsonl(tmp_path / "input").to_backend("pandas")
    with pytest.raises(
        errors.UnsupportedBackendError, match=r"df\.to_backend\(\), a method of Dask.*to_backend\(df, 'cudf'\)"
    ):
        cdf.explain(docs, memory="1GB")
    assert cdf.to_backend(docs, "pandas") is docs
