# SPDX-License-Identifier: Apache-2.0
"""`write_many` with formats of tokens: each folder has the files that `write_tokens` writes, after one pass over the input."""

from __future__ import annotations

import json

import numpy as np
import pytest

import curator_df as cdf
from curator_df import errors
from curator_df.core import backend
from curator_df.memory.process_cache import release_held
from tests.core.runner.fake_client import inline_cluster
from tests.models.tokens.tiny_tokenizers import SENTENCES, tiny

pytest.importorskip("tokenizers", reason="needs the tokenizers extra (tokenizers is not installed)")


@pytest.fixture(scope="module", autouse=True)
def cluster():
    with inline_cluster(memory="2GB", cpus=2) as running:
        yield running
    release_held()


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tokenizer")
    tiny(folder)
    return folder / "tokenizer.json"


@pytest.fixture
def parts(tmp_path):
    lines = [json.dumps({"id": number, "text": f"{SENTENCES[number % 2]}{number}"}) for number in range(200)]
    (tmp_path / "in.jsonl").write_text("\n".join(lines) + "\n")
    return cdf.read_jsonl(tmp_path / "in.jsonl").pipe(cdf.split_rows, {"train": 0.8, "validation": 0.2}, seed=7)


def contents(folder):
    files = (path for path in folder.rglob("*") if path.is_file() and "_curator" not in path.parts)
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}


@pytest.mark.parametrize(
    "how", [{"format": "megatron", "pack": 64}, {"format": "numpy", "merge": True}, {"format": "mds"}]
)
def test_each_folder_has_the_files_of_write_tokens(parts, made, tmp_path, how):
    folders = {tmp_path / "many" / name: part for name, part in parts.items()}
    receipts = cdf.write_many(folders, tokenizer=made, **how)
    for (folder, receipt), (name, part) in zip(receipts.items(), parts.items(), strict=True):
        alone = cdf.write_tokens(part, tmp_path / "alone" / name, tokenizer=made, **how)
        assert contents(folder) == contents(tmp_path / "alone" / name) != {}
        assert (receipt.rows_read, receipt.rows_written) == (200, alone.rows_written)
    assert sum(receipt.rows_written for receipt in receipts.values()) == 200


def test_tokens_and_tables_are_written_in_one_pass(parts, made, tmp_path):
    tokens, table = tmp_path / "tokens", tmp_path / "table"
    folders = {tokens: parts["train"], table: parts["validation"]}
    receipts = cdf.write_many(folders, format={tokens: "numpy"}, tokenizer=made, pack=32, compression={table: "snappy"})
    assert np.load(next(tokens.glob("*.npy"))).shape[1] == 32
    assert len(cdf.read_parquet(table).compute()) == receipts[table].rows_written


@pytest.mark.parametrize(
    ("how", "said"),
    [
        (
            {"format": "megatron"},
            r"format='megatron' of 'out/train' needs a tokenizer\. Set tokenizer=, such as tokenizer='tokenizer\.json'",
        ),
        (
            {"tokenizer": "t.json"},
            r"tokenizer='t\.json' applies only to formats of tokens \(megatron, .*\), but format= is 'parquet'",
        ),
        ({"pack": 64, "format": "jsonl"}, "pack=64 applies only to formats of tokens .* but format= is 'jsonl'"),
        ({"format": "megatron", "tokenizer": "MADE", "pack": 1}, "write_many: pack=1 must be the number of tokens"),
        (
            {"format": "megatron", "tokenizer": "MADE", "compression": "zstd"},
            "compression='zstd' is for Parquet and JSON",
        ),
        (
            {"format": "megatron", "tokenizer": "MADE", "partition_on": "id"},
            "partition_on='id' is for Parquet and JSON",
        ),
        ({"format": "megatrn", "tokenizer": "MADE"}, "format='megatrn' is not one of .* Did you mean 'megatron'"),
    ],
)
def test_arguments_that_do_not_fit_are_refused(parts, made, tmp_path, monkeypatch, how, said):
    monkeypatch.chdir(tmp_path)
    given = {name: made if value == "MADE" else value for name, value in how.items()}
    with pytest.raises(errors.ParameterError, match=said):
        cdf.write_many({f"out/{name}": part for name, part in parts.items()}, **given)
    assert not (tmp_path / "out").exists()


def test_blocks_in_gpu_memory_are_refused_under_the_name_of_the_function(parts, made, tmp_path, monkeypatch):
    monkeypatch.setattr(backend, "backend_of", lambda _: "cudf")
    outputs = {tmp_path / "out" / name: part for name, part in parts.items()}
    with pytest.raises(errors.UnsupportedBackendError, match="write_many works on pandas blocks"):
        cdf.write_many(outputs, format="megatron", tokenizer=made)
    with pytest.raises(errors.UnsupportedBackendError, match="write_tokens works on pandas blocks"):
        cdf.write_tokens(parts["train"], tmp_path / "out", tokenizer=made)
