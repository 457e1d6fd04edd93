# SPDX-License-Identifier: Apache-2.0
"""`write_tokens`: every token of every document is in the files, and each range of tokens names the row that it comes from."""

from __future__ import annotations

import itertools
import json
import os
import re
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import curator_df as cdf
from curator_df.core.runner import run
from curator_df.errors import (
    ColumnError,
    CorruptFileError,
    OperatorError,
    OutputExistsError,
    ParameterError,
    ResumeError,
    SchemaError,
)
from curator_df.files.storage import Folder
from curator_df.memory.process_cache import release_held
from curator_df.models.tokens import merging
from tests.core.runner.fake_client import inline_cluster
from tests.models.tokens.test_formats import streaming_module
from tests.models.tokens.tiny_tokenizers import SENTENCES, ids_of, tiny
from tests.test_docs import CHECKOUT, code_blocks

pytest.importorskip("tokenizers", reason="needs the tokenizers extra (tokenizers is not installed)")
TEXTS: list[str | None] = [
    *(f"{SENTENCES[number % 2]}{'be ' * (number % 37)}{number}" for number in range(300)),
    "",
    None,
    "to be " * 40_000,  # longer than a piece
    "caf\u00e9 \u6f22\u5b57",
]


@pytest.fixture(autouse=True)
def small_splits(monkeypatch):
    monkeypatch.setattr(run, "SMALL_RANGE_BYTES", 10_000)
    yield
    release_held()


@pytest.fixture
def corpus(tmp_path):
    """Two files of JSON Lines."""
    folder = tmp_path / "in"
    folder.mkdir()
    for name, texts in (("a", TEXTS[:200]), ("b", TEXTS[200:])):
        lines = (orjson.dumps({"text": text, "id": number}) for number, text in enumerate(texts))
        (folder / f"{name}.jsonl").write_bytes(b"\n".join(lines) + b"\n")
    return folder


@pytest.fixture
def made(tmp_path):
    return tiny(tmp_path / "tokenizer")


def written(corpus: Path, out: Path, memory: str = "2GB", blocksize: str | None = None, **options: Any) -> Any:
    options.setdefault("tokenizer", out.parent / "tokenizer")
    with inline_cluster(memory):
        docs = cdf.read_jsonl(corpus, **({} if blocksize is None else {"blocksize": blocksize}))
        return cdf.write_tokens(docs, out, **options)


def tokens_in(out: Path, form: str) -> list[list[int]]:
    """Return the tokens of each part."""
    if form == "numpy":
        return [np.load(path, mmap_mode="r").ravel().tolist() for path in sorted(out.glob("*.npy"))]
    if form == "megatron":
        return [np.fromfile(path, "<u2").tolist() for path in sorted(out.glob("*.bin"))]
    if form == "mds":
        return [shard_tokens(path.read_bytes()) for path in sorted(out.glob("*.mds"))]
    tables = [pa.ipc.open_stream(path.read_bytes()).read_all() for path in sorted(out.glob("*.arrow"))]
    return [[token for row in table["input_ids"].to_pylist() for token in row] for table in tables]


def shard_tokens(shard: bytes) -> list[int]:
    """Return the tokens of all samples of a shard, each of which has a size and the head of an array if its length is its own."""
    (samples,) = struct.unpack_from("<I", shard)
    offsets = np.frombuffer(shard, "<u4", samples + 1, 4).tolist()
    config = json.loads(shard[4 * (samples + 2) : offsets[0]])
    found: list[int] = []
    for start, stop in itertools.pairwise(offsets):
        width = 4 + 1 + (1 << shard[start + 4] % 4) if config["column_sizes"] == [None] else 0
        found += np.frombuffer(shard[start + width : stop], "<i4").tolist()
    return found


def by_row(out: Path, form: str) -> dict[tuple[str, int], list[int]]:
    """Return the tokens of each input row, by file and offset, as the tables of documents say."""
    found: dict[tuple[str, int], list[int]] = {}
    for tokens, path in zip(tokens_in(out, form), sorted((out / "_provenance").iterdir()), strict=True):
        pieces = pq.read_table(path).to_pylist()
        for piece in sorted(pieces, key=lambda piece: piece["document"]):
            row = found.setdefault((Path(piece["file"]).name, piece["offset"]), [])
            row += tokens[piece["first_token"] : piece["first_token"] + piece["tokens"]]
    return found


def expected(corpus: Path, made: Any, **options: Any) -> dict[tuple[str, int], list[int]]:
    found, number = {}, 0
    for name in ("a.jsonl", "b.jsonl"):
        offset = 0
        for line in (corpus / name).read_bytes().splitlines(keepends=True):
            found[name, offset] = ids_of(made, TEXTS[number], **options)
            offset += len(line)
            number += 1
    return found


@pytest.mark.parametrize("form", ["megatron", "numpy", "arrow", "mds"])
def test_the_files_have_the_tokens_of_each_document(corpus, made, tmp_path, form):
    receipt = written(corpus, tmp_path / "out", format=form)
    assert receipt.rows_written == len(TEXTS)
    assert receipt.rows_by_folder == {}
    wanted = expected(corpus, made)
    assert by_row(tmp_path / "out", form) == wanted
    parts = tokens_in(tmp_path / "out", form)
    assert len(parts) > 4
    assert [token for part in parts for token in part] == [token for row in wanted.values() for token in row]
    (step,) = [step for step in receipt.steps if step.name == "write_tokens"]
    assert step.counters["tokens"] == sum(map(len, wanted.values()))


@pytest.mark.parametrize("form", ["megatron", "numpy", "arrow", "mds"])
@pytest.mark.parametrize("split", [True, False])
def test_a_pack_has_the_tokens_of_each_document(corpus, made, tmp_path, form, split):
    out = tmp_path / "out"
    written(corpus, out, format=form, pack=64, split_documents=split)
    found, wanted = by_row(out, form), expected(corpus, made)
    for key, tokens in wanted.items():
        if split or len(tokens) <= 64:
            assert found[key] == tokens
        assert sorted(found[key]) == sorted(tokens)
    assert all(len(part) % 64 == 0 for part in tokens_in(out, form))
    if form == "numpy":
        assert {np.load(path).shape[1] for path in out.glob("*.npy")} == {64}


def test_options_say_which_tokens_are_written(corpus, made, tmp_path):
    written(corpus, tmp_path / "plain", format="numpy", add_eos=False)
    assert by_row(tmp_path / "plain", "numpy") == expected(corpus, made, eos=None)
    written(corpus, tmp_path / "special", format="numpy", add_eos=False, special_tokens=True)
    special = by_row(tmp_path / "special", "numpy")
    assert list(special.values()) == [[] if text is None else made.encode(text).ids for text in TEXTS]
    written(corpus, tmp_path / "pad", format="numpy", eos_token="<pad>", provenance=False)
    assert not (tmp_path / "pad/_provenance").exists()
    assert [token for part in tokens_in(tmp_path / "pad", "numpy") for token in part] == [
        token for row in expected(corpus, made, eos="<pad>").values() for token in row
    ]
    written(corpus, tmp_path / "own", format="numpy", pack=1000, pad_id=7)
    own = tokens_in(tmp_path / "own", "numpy")
    assert all(part[-1] == 7 for part in own)
    written(corpus, tmp_path / "its", format="numpy", pack=1000)
    assert {part[-1] for part in tokens_in(tmp_path / "its", "numpy")} == {made.token_to_id("<pad>")}


def test_files_do_not_depend_on_memory_or_blocks(corpus, made, tmp_path):
    for form, options in (
        ("megatron", {"merge": True}),
        ("numpy", {"pack": 32, "split_documents": False}),
        ("arrow", {}),
        ("mds", {}),
    ):
        outs = [tmp_path / f"{form}-{blocksize}" for blocksize in ("500", "1MB")]
        for out, blocksize in zip(outs, ("500", "1MB"), strict=True):
            written(corpus, out, blocksize=blocksize, format=form, **options)
        one, two = ({path.relative_to(out): path.read_bytes() for path in files_of(out)} for out in outs)
        assert one == two


def files_of(out: Path) -> list[Path]:
    return sorted(path for path in out.rglob("*") if path.is_file() and "_curator" not in path.parts)


def pair_of(sequences: list[list[int]]) -> tuple[bytes, bytes]:
    """Return the pair of Megatron in uint16 whose documents are these sequences."""
    lengths = [len(each) for each in sequences]
    ends = np.cumsum([0, *lengths])
    parts = [np.array(lengths, "<i4"), 2 * ends[:-1].astype("<i8"), np.arange(len(lengths) + 1, dtype="<i8")]
    head = b"MMIDIDX\x00\x00" + struct.pack("<QBQQ", 1, 8, len(lengths), len(lengths) + 1)
    return np.array(list(itertools.chain(*sequences)), "<u2").tobytes(), head + b"".join(
        part.tobytes() for part in parts
    )


@pytest.mark.parametrize("split_documents", [True, False])
def test_packed_sequences_of_megatron_are_merged_in_order(corpus, made, tmp_path, split_documents):
    options = {"pack": 32, "split_documents": split_documents}
    written(corpus, tmp_path / "out", merge=True, **options)
    written(corpus, tmp_path / "rows", format="numpy", **options)
    parts = [np.load(path) for path in sorted((tmp_path / "rows").glob("*.npy"))]
    assert len(parts) > 2
    sequences = [row for part in parts for row in part.reshape(-1, 32).tolist()]
    tokens, index = pair_of(sequences)
    assert (tmp_path / "out/merged/tokens.bin").read_bytes() == tokens
    assert (tmp_path / "out/merged/tokens.idx").read_bytes() == index


@pytest.mark.filterwarnings("ignore")
def test_megatron_reads_merged_sequences(corpus, made, tmp_path):
    megatron = pytest.importorskip(
        "megatron.core.datasets.indexed_dataset", reason="needs megatron-core (not installed)"
    )
    receipt = written(corpus, tmp_path / "out", merge=True, pack=32)
    dataset = megatron.IndexedDataset(str(tmp_path / "out/merged/tokens"))
    assert dataset.sequence_lengths.tolist() == [32] * len(dataset)
    assert dataset.document_indices.tolist() == list(range(len(dataset) + 1))
    parts = [megatron.IndexedDataset(str(path)[:-4]) for path in sorted((tmp_path / "out").glob("*.bin"))]
    assert [row.tolist() for row in dataset] == [row.tolist() for part in parts for row in part]
    assert receipt.rows_written == len(TEXTS)


@pytest.mark.parametrize("form", ["megatron", "numpy"])
def test_a_merge_is_what_one_writer_would_have_written(corpus, made, tmp_path, form, monkeypatch):
    written(corpus, tmp_path / "out", format=form, merge=True)
    monkeypatch.setattr(run, "SMALL_RANGE_BYTES", 1 << 30)
    monkeypatch.setattr(run, "RANGE_BYTES", 1 << 30)
    one = tmp_path / "one"
    one.mkdir()
    lines = b"".join(path.read_bytes() for path in sorted(corpus.iterdir()))
    (one / "all.jsonl").write_bytes(lines)
    written(one, tmp_path / "whole", format=form)
    suffixes = ("bin", "idx") if form == "megatron" else ("npy",)
    for suffix in suffixes:
        whole = (tmp_path / f"whole/part-000000-000.{suffix}").read_bytes()
        assert (tmp_path / f"out/merged/tokens.{suffix}").read_bytes() == whole
    assert len(files_of(tmp_path / "out")) > 8


@pytest.mark.filterwarnings("ignore")
def test_a_merge_has_the_bytes_of_megatrons_own_preprocessing(corpus, made, tmp_path):
    """Encode as `Encoder.encode` in Megatron's preprocess_data.py does, with --append-eod."""
    megatron = pytest.importorskip(
        "megatron.core.datasets.indexed_dataset", reason="needs megatron-core (not installed)"
    )
    transformers = pytest.importorskip("transformers", reason="needs transformers (not installed)")
    written(corpus, tmp_path / "out", merge=True)
    theirs = transformers.AutoTokenizer.from_pretrained(str(tmp_path / "tokenizer"))
    builder = megatron.IndexedDatasetBuilder(
        str(tmp_path / "theirs.bin"), dtype=megatron.DType.optimal_dtype(len(theirs))
    )
    for text in TEXTS:
        ids = theirs.convert_tokens_to_ids(theirs.tokenize(text)) if text else []
        lengths = [len(ids)] if ids else []
        if ids:
            ids.append(theirs.eos_token_id)
            lengths[-1] += 1
        builder.add_document(ids, lengths)
    builder.finalize(str(tmp_path / "theirs.idx"))
    for suffix in ("bin", "idx"):
        assert (tmp_path / f"out/merged/tokens.{suffix}").read_bytes() == (tmp_path / f"theirs.{suffix}").read_bytes()
    dataset = megatron.IndexedDataset(str(tmp_path / "out/merged/tokens"))
    assert len(dataset) == sum(bool(text) for text in TEXTS)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("pack", [None, 64])
def test_streaming_reads_the_shards(corpus, made, tmp_path, pack):
    dataset = streaming_module("local").LocalDataset
    written(corpus, tmp_path / "out", format="mds", pack=pack)
    found = [sample["tokens"].tolist() for sample in dataset(str(tmp_path / "out"))]
    rows = expected(corpus, made).values()
    if pack is None:
        assert found == [row for row in rows if row]
    else:
        assert {len(sample) for sample in found} == {64}
    assert len([token for sample in found for token in sample]) >= sum(map(len, rows))


def test_an_index_of_shards_is_mended(corpus, made, tmp_path):
    out = tmp_path / "out"
    written(corpus, out, format="mds")
    index = (out / "index.json").read_bytes()
    shards = json.loads(index)["shards"]
    assert [shard["raw_data"]["basename"] for shard in shards] == [path.name for path in sorted(out.glob("*.mds"))]
    assert sum(shard["samples"] for shard in shards) == sum(bool(text) for text in TEXTS)
    (out / "index.json").unlink()
    written(corpus, out, format="mds", on_existing="resume")
    assert (out / "index.json").read_bytes() == index
    written(corpus, out, format="mds", pack=8, on_existing="overwrite")
    assert (out / "index.json").read_bytes() != index


@pytest.mark.parametrize("form", ["megatron", "numpy", "arrow", "mds"])
def test_another_file_system_has_the_same_files(corpus, made, tmp_path, form):
    merge = form in {"megatron", "numpy"}
    written(corpus, tmp_path / "out", format=form, merge=merge)
    url = f"memory://tokens-{form}"
    with inline_cluster():
        options = {"tokenizer": tmp_path / "tokenizer", "format": form, "merge": merge}
        cdf.write_tokens(cdf.read_jsonl(corpus), url, **options)
        cdf.write_tokens(cdf.read_jsonl(corpus), url, on_existing="resume", **options)
    found = Folder(url)
    names = [name for name in found.names() if not name.startswith("_curator/")]
    wanted = {str(path.relative_to(tmp_path / "out")): path.read_bytes() for path in files_of(tmp_path / "out")}
    assert {name: found.read(name) for name in names} == wanted
    found.delete_tree("")


def test_a_merge_can_be_asked_for_later_and_is_mended(corpus, made, tmp_path):
    out = tmp_path / "out"
    written(corpus, out)
    assert not (out / "merged").exists()
    written(corpus, out, merge=True, on_existing="resume")
    first = {path.name: path.read_bytes() for path in (out / "merged").iterdir()}
    changed = out / "merged/tokens.bin"
    changed.write_bytes(changed.read_bytes()[:-2])
    (out / "merged/tokens.idx").unlink()
    written(corpus, out, merge=True, on_existing="resume")
    assert {path.name: path.read_bytes() for path in (out / "merged").iterdir()} == first
    (out / "part-000001-000.bin").unlink()
    written(corpus, out, merge=True, on_existing="resume")
    assert {path.name: path.read_bytes() for path in (out / "merged").iterdir()} == first
    written(corpus, out, on_existing="overwrite")
    assert not (out / "merged/tokens.bin").exists()


@pytest.mark.parametrize("form", ["megatron", "numpy"])
def test_a_killed_merge_continues_after_the_last_part_that_it_noted(corpus, made, tmp_path, form, monkeypatch):
    out = tmp_path / "out"
    written(corpus, out, format=form, merge=True)
    first = {path.name: path.read_bytes() for path in (out / "merged").iterdir()}
    for path in (out / "merged").iterdir():
        path.unlink()
    monkeypatch.setattr(merging, "SYNC_BYTES", 1)
    read, names = merging._checked, []

    def killed(folder: Any, file: Any, size_bytes: int) -> Any:
        names.append(file.name)
        if len(names) == 4:
            (content, *_) = read(folder, file, size_bytes)
            yield content[: len(content) // 2]  # so that a part is half written
            raise KeyboardInterrupt
        yield from read(folder, file, size_bytes)

    monkeypatch.setattr(merging, "_checked", killed)
    with pytest.raises(KeyboardInterrupt):
        written(corpus, out, format=form, merge=True, on_existing="resume")
    assert list((out / "merged").iterdir()) == []
    half = names.pop()
    names.clear()
    names += ["before"] * 9
    written(corpus, out, format=form, merge=True, on_existing="resume")
    assert names[9] == half
    assert {path.name: path.read_bytes() for path in (out / "merged").iterdir()} == first
    assert not (out / "_curator/merging").exists()


def test_a_part_that_was_changed_is_not_merged(corpus, made, tmp_path):
    out = tmp_path / "out"
    written(corpus, out)
    changed = out / "part-000001-000.bin"
    content, found = bytearray(changed.read_bytes()), changed.stat()
    content[0] ^= 1
    changed.write_bytes(content)
    os.utime(changed, ns=(found.st_atime_ns, found.st_mtime_ns))  # as after a fault of the disk
    with pytest.raises(
        CorruptFileError, match=r"part-000001-000\.bin does not have the bytes that the run wrote.*Delete"
    ):
        written(corpus, out, merge=True, on_existing="resume")
    assert list((out / "merged").glob("*")) == []
    os.utime(changed)
    written(corpus, out, merge=True, on_existing="resume")
    content[0] ^= 1
    assert changed.read_bytes() == content
    assert (out / "merged/tokens.idx").exists()


def test_another_tokenizer_is_another_run(corpus, made, tmp_path):
    out = tmp_path / "out"
    written(corpus, out)
    with pytest.raises(OutputExistsError):
        written(corpus, out)
    tiny(tmp_path / "other", vocabulary=290)
    with pytest.raises(ResumeError, match=r"in step 1 \(write_tokens\), tokenizer changed"):
        written(corpus, out, tokenizer=tmp_path / "other", on_existing="resume")
    with pytest.raises(ResumeError, match=r"eos_id changed from 1 to not set|eos_id changed from 1 to None"):
        written(corpus, out, add_eos=False, on_existing="resume")
    with pytest.raises(ResumeError, match=r"pack changed from None to 64"):
        written(corpus, out, pack=64, on_existing="resume")
    with pytest.raises(ResumeError, match=r"cannot resume"):
        written(corpus, out, format="arrow", on_existing="resume")
    same = tmp_path / "moved"
    (tmp_path / "tokenizer").rename(same)
    written(corpus, out, tokenizer=same, on_existing="resume")


def test_an_output_without_documents_has_empty_files(corpus, made, tmp_path):
    with inline_cluster():
        docs = cdf.read_jsonl(corpus).pipe(cdf.keep_where, "id < 0")
        for form in ("numpy", "arrow", "megatron", "mds"):
            merge = form in {"numpy", "megatron"}
            cdf.write_tokens(docs, tmp_path / form, tokenizer=tmp_path / "tokenizer", format=form, merge=merge)
    assert tokens_in(tmp_path / "numpy", "numpy") == [[]]
    assert tokens_in(tmp_path / "arrow", "arrow") == [[]]
    assert json.loads((tmp_path / "mds/index.json").read_text()) == {"shards": [], "version": 2}
    assert (tmp_path / "megatron/part-000000-000.idx").stat().st_size == 42
    assert np.load(tmp_path / "numpy/merged/tokens.npy").shape == (0,)


def test_dropped_rows_are_written_as_rejects(corpus, made, tmp_path):
    with inline_cluster():
        docs = cdf.read_jsonl(corpus).pipe(cdf.keep_where, "id % 2 == 0")
        receipt = cdf.write_tokens(
            docs, tmp_path / "out", tokenizer=tmp_path / "tokenizer", format="numpy", rejects=tmp_path / "rejects"
        )
        dropped = cdf.read_parquet(tmp_path / "rejects").compute()
    assert len(dropped) == receipt.rows_dropped == len(TEXTS) // 2
    rows = by_row(tmp_path / "out", "numpy")
    kept = [row for number, row in enumerate(expected(corpus, made).items()) if (number % 200) % 2 == 0]
    assert list(rows.items()) == kept


def renumbered(block: Any) -> Any:
    """Stand for a function of the user that gives rows another index."""
    return block.reset_index(drop=True)


def test_rows_without_their_ids_have_no_provenance(corpus, made, tmp_path):
    with inline_cluster():
        docs = cdf.read_jsonl(corpus)
        docs = docs.map_partitions(renumbered, meta=docs._meta)
        given = {"tokenizer": tmp_path / "tokenizer", "format": "numpy"}
        with pytest.raises(OperatorError, match=r"changed the index.*by which write_tokens identifies rows"):
            cdf.write_tokens(docs, tmp_path / "out", **given)
        cdf.write_tokens(docs, tmp_path / "plain", provenance=False, **given)
    found = [token for part in tokens_in(tmp_path / "plain", "numpy") for token in part]
    assert found == [token for row in expected(corpus, made).values() for token in row]


def test_options_that_do_not_fit_are_errors(corpus, made, tmp_path):
    tiny(tmp_path / "unnamed", eos=None)
    (tmp_path / "unnamed/tokenizer_config.json").write_text(json.dumps({}))
    for options, message in (
        ({"format": "tokens"}, r"format='tokens' is not one of"),
        ({"pack": 1}, r"pack=1 must be the number of tokens of a sequence, from 2 to 1,000,000"),
        ({"pack": "2048"}, r"pack='2048' must be the number"),
        ({"pad_id": 1}, r"pad_id=1 applies only to packed sequences\. Set pack="),
        ({"split_documents": False}, r"split_documents=False applies only to packed sequences"),
        ({"pack": 8, "pad_id": 900}, r"pad_id=900 is not a token of"),
        ({"eos_token": True}, r"eos_token=True must be a token"),
        ({"merge": True, "format": "arrow"}, r"merge=True applies to the formats 'megatron' and 'numpy'"),
        ({"tokenizer": tmp_path / "unnamed"}, r"add_eos=True needs an EOS token"),
        ({"tokenizer": tmp_path / "unnamed", "add_eos": False, "pack": 8}, r"names neither a padding token nor an EOS"),
    ):
        with pytest.raises(ParameterError, match=message):
            written(corpus, tmp_path / "out", **options)
    with pytest.raises(ColumnError, match="write_tokens needs the column 'body'"):
        written(corpus, tmp_path / "out", text="body")
    with pytest.raises(SchemaError, match="write_tokens needs text in the column 'id'"):
        written(corpus, tmp_path / "out", text="id")
    assert not (tmp_path / "out").exists()


def test_the_example_of_the_page_on_tokens_runs_as_a_script(tmp_path):
    example = code_blocks((CHECKOUT / "docs/tokens.md").read_text(), "python")[-1]
    (tmp_path / "example.py").write_text(example)
    run = subprocess.run(
        [sys.executable, "example.py"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(CHECKOUT)},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        timeout=200,
    )
    printed = [line for line in run.stdout.splitlines() if line.startswith("[")]
    assert printed == re.findall(r"\.tolist\(\)\)  # (.+)", example)
    assert len(printed) == 2


def test_a_plan_says_what_the_tokens_take(corpus, made, tmp_path):
    docs = cdf.read_jsonl(corpus)
    plan = cdf.explain(docs, cdf.write_tokens, tokenizer=tmp_path / "tokenizer", memory="2GB", cpus=2)
    assert "write_tokens: 2.6 x block (measured)" in str(plan)
    assert plan.held_bytes > 60_000_000
