# SPDX-License-Identifier: Apache-2.0
"""Files of tokens have the bytes that Megatron, NumPy and Arrow expect, however the documents are cut into blocks."""

from __future__ import annotations

import hashlib
import importlib.util
import io
import itertools
import struct
import sys
import types
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from curator_df.errors import ParameterError
from curator_df.files.storage import Folder
from curator_df.models.tokens import formats
from curator_df.models.tokens.formats import ArrowFormat, MdsFormat, MegatronFormat, NumpyFormat
from curator_df.models.tokens.tokenizer import Vocabulary

DOCUMENTS = [[5, 6, 7, 2], [], [9, 2], [40_000, 1, 2], [], [3] * 300 + [2], []]
DIGESTS = {
    "uint16": (
        "1e127d8a8fd746c86710cfe02548cdd2cd454f45b3cb634762932d25ef157f82",
        "2ac5dba840e7d1f02f696ac8d0991c90714a620eb54a5707da988a3628343114",
    ),
    "int32": (
        "6a1f23bb9cdd4a1144a9831e83ea4b06fdfe41326b61d66ae3e54b66a5f5a85c",
        "ef0fd270f87c8b46166d9e3ce4e7c4a58d84c68d69ad4a927735676312bcac6d",
    ),
}
"""Digests (SHA-256) of the pair that megatron-core 0.16.1 writes for `DOCUMENTS`, by the type of the tokens."""


def write(form: Any, folder: Path, documents: list[list[int]], cuts: tuple[int, ...] = ()) -> list[bytes]:
    """Write documents in blocks that end at ``cuts``; return the content of the files."""
    writer = form.open(Folder(str(folder)), 0)
    bounds = [0, *sorted(cuts), len(documents)]
    for start, stop in itertools.pairwise(bounds):
        some = documents[start:stop]
        flat = [token for document in some for token in document]
        writer.write(np.array(flat, dtype=form.dtype), np.array([len(each) for each in some], dtype=np.int64))
    for file in writer.finish():
        file.commit()
    writer.discard()
    return [(folder / formats.name_of(0, suffix)).read_bytes() for suffix in form.suffixes]


def built_by_megatron(folder: Path, documents: list[list[int]], dtype: str) -> list[bytes]:
    """Return the pair that Megatron's preprocess_data.py writes for documents of these tokens."""
    megatron = pytest.importorskip(
        "megatron.core.datasets.indexed_dataset", reason="needs megatron-core (not installed)"
    )
    builder = megatron.IndexedDatasetBuilder(str(folder / "m.bin"), dtype=getattr(np, dtype))
    for document in documents:
        builder.add_document(document, [len(document)] if document else [])
    builder.finalize(str(folder / "m.idx"))
    return [(folder / f"m.{suffix}").read_bytes() for suffix in ("bin", "idx")]


@pytest.mark.parametrize("dtype", DIGESTS)
def test_a_pair_has_the_bytes_that_megatron_writes(tmp_path, dtype):
    pair = write(MegatronFormat(dtype), tmp_path, DOCUMENTS, (2, 2, 5))
    assert tuple(hashlib.sha256(content).hexdigest() for content in pair) == DIGESTS[dtype]


@pytest.mark.filterwarnings("ignore")  # what the package says about GPUs when it is imported
@pytest.mark.parametrize("dtype", DIGESTS)
@pytest.mark.parametrize("documents", [DOCUMENTS, [[1]], [[], [1, 2]]])
def test_the_live_package_writes_the_same_pair_and_reads_it(tmp_path, dtype, documents):
    pair = write(MegatronFormat(dtype), tmp_path, documents, (1,))
    assert pair == built_by_megatron(tmp_path, documents, dtype)
    megatron = pytest.importorskip(
        "megatron.core.datasets.indexed_dataset", reason="needs megatron-core (not installed)"
    )
    dataset = megatron.IndexedDataset(str(tmp_path / "part-000000-000"))
    assert [dataset[place].tolist() for place in range(len(dataset))] == [each for each in documents if each]
    assert dataset.document_indices.tolist() == np.cumsum([0, *(bool(each) for each in documents)]).tolist()


def test_an_index_says_where_each_document_is(tmp_path):
    _, index = write(MegatronFormat("uint16"), tmp_path, DOCUMENTS)
    assert index[:9] == b"MMIDIDX\x00\x00"
    version, code, sequences, documents = struct.unpack_from("<QBQQ", index, 9)
    assert (version, code, sequences, documents) == (1, 8, 4, 8)
    lengths, rest = np.frombuffer(index, "<i4", 4, 34), np.frombuffer(index, "<i8", 12, 50)
    assert lengths.tolist() == [4, 2, 3, 301]
    assert rest[:4].tolist() == [0, 8, 12, 18]
    assert rest[4:].tolist() == [0, 1, 1, 2, 3, 3, 4, 4]


def test_the_type_of_tokens_is_that_of_megatron():
    for size, largest, dtype in (
        (65_499, 65_498, "uint16"),
        (65_500, 65_499, "int32"),
        (100, 65_536, "int32"),
        (100, 65_535, "uint16"),
    ):
        assert MegatronFormat.of(Vocabulary(size, largest, None, None)).dtype == dtype
    for largest, dtype in ((65_535, "uint16"), (65_536, "uint32")):
        assert NumpyFormat.of(Vocabulary(10, largest, None, None), None).dtype == dtype


@pytest.mark.parametrize("dtype", ["uint16", "uint32"])
def test_numpy_maps_an_array(tmp_path, dtype):
    write(NumpyFormat(dtype, None), tmp_path, DOCUMENTS, (3,))
    found = np.load(tmp_path / "part-000000-000.npy", mmap_mode="r")
    assert found.dtype == dtype
    assert found.tolist() == [token for document in DOCUMENTS for token in document]
    packed = [[1, 2, 3, 4], [5, 6, 7, 8], [9, 9, 9, 9]]
    write(NumpyFormat(dtype, 4), tmp_path / "packed", packed, (1,))
    found = np.load(tmp_path / "packed/part-000000-000.npy", mmap_mode="r")
    assert isinstance(found, np.memmap)
    assert found.tolist() == packed


def test_an_array_without_tokens_can_be_loaded(tmp_path):
    for pack, shape in ((None, (0,)), (4, (0, 4))):
        (content,) = write(NumpyFormat("uint16", pack), tmp_path / str(pack), [])
        assert np.load(io.BytesIO(content)).shape == shape


def test_arrow_maps_a_stream_and_long_documents_are_batches(tmp_path, monkeypatch):
    monkeypatch.setattr(formats, "BATCH_TOKENS", 200)
    (content,) = write(ArrowFormat(), tmp_path, DOCUMENTS, (3,))
    with pa.memory_map(str(tmp_path / "part-000000-000.arrow")) as file:
        batches = list(pa.ipc.open_stream(file))
        assert pa.Table.from_batches(batches)["input_ids"].to_pylist() == DOCUMENTS
    assert [len(batch) for batch in batches] == [5, 1, 1]
    assert batches[0].schema == pa.schema([("input_ids", pa.list_(pa.int32()))])
    assert content.endswith(b"\xff\xff\xff\xff\0\0\0\0")  # the end of a stream


@pytest.mark.filterwarnings("ignore")
def test_the_package_datasets_reads_a_stream(tmp_path):
    datasets = pytest.importorskip("datasets", reason="needs the package datasets (not installed)")
    write(ArrowFormat(), tmp_path, DOCUMENTS)
    path = str(tmp_path / "part-000000-000.arrow")
    assert datasets.Dataset.from_file(path)["input_ids"][:] == DOCUMENTS
    loaded = datasets.load_dataset("arrow", data_files=path, split="train", cache_dir=str(tmp_path / "cache"))
    assert loaded["input_ids"][:] == DOCUMENTS


PACKED = [[1, 2, 3, 4], [5, 6, 7, 8]]
SHARDS = {
    None: "b1053b284cb002a4ab1a7cb3114ce5c7a553fc22ec414f62d7f51806e6cb0693",
    4: "896548c0d76061e20f5b3512791ff7287224e8a1def91048ec93abffc456b583",
}
"""Digests (SHA-256) of the shards that mosaicml-streaming 0.13.0 writes for `DOCUMENTS` and `PACKED`, by the length."""


def streaming_module(name: str) -> Any:
    """Import a module of MosaicML Streaming, whose package itself also needs torchvision."""
    spec = importlib.util.find_spec("streaming")
    if spec is None or importlib.util.find_spec("torch") is None:
        pytest.skip("needs mosaicml-streaming and torch (not installed)")
    with pytest.MonkeyPatch.context() as patch:
        if "streaming" not in sys.modules:
            package: Any = types.ModuleType("streaming")
            package.__path__ = list(spec.submodule_search_locations or ())
            patch.setitem(sys.modules, "streaming", package)
        return importlib.import_module(f"streaming.base.{name}")


def sharded_by_streaming(folder: Path, pack: int | None) -> bytes:
    """Return the shard that MosaicML Streaming writes."""
    encoding = "ndarray:int32" if pack is None else f"ndarray:int32:{pack}"
    writer = streaming_module("format.mds.writer").MDSWriter
    with writer(columns={"tokens": encoding}, out=str(folder), size_limit=None) as out:
        for document in DOCUMENTS if pack is None else PACKED:
            if document:
                out.write({"tokens": np.array(document, np.int32)})
    return (folder / "shard.00000.mds").read_bytes()


@pytest.mark.parametrize("pack", SHARDS)
def test_a_shard_has_the_bytes_that_streaming_writes(tmp_path, pack):
    (shard,) = write(MdsFormat(pack), tmp_path, DOCUMENTS if pack is None else PACKED, (1,))
    assert hashlib.sha256(shard).hexdigest() == SHARDS[pack]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("pack", SHARDS)
def test_the_live_package_writes_the_same_shard(tmp_path, pack):
    (shard,) = write(MdsFormat(pack), tmp_path / "ours", DOCUMENTS if pack is None else PACKED, (1,))
    assert shard == sharded_by_streaming(tmp_path / "theirs", pack)


@pytest.mark.parametrize(
    ("length", "head"),
    [(255, b"\x04\xff"), (256, b"\x05\0\x01"), (65_536, b"\x06\0\0\x01\0"), (1 << 32, b"\x07\0\0\0\0\x01\0\0\0")],
)
def test_a_sample_says_its_length_in_the_fewest_bytes(length, head):
    assert formats._shape(length) == head


def test_a_shard_that_is_too_large_is_an_error(tmp_path):
    writer = MdsFormat(None).open(Folder(str(tmp_path)), 3)
    writer.write(np.array([1], np.int32), np.array([1], np.int64))
    writer._spooled.size_bytes = 1 << 32
    with pytest.raises(ParameterError, match=r"part-000003-000\.mds would have 4\.29 GB, but a file of MosaicML"):
        writer.finish()
    writer.discard()
    assert not list(tmp_path.glob("*.mds"))


@given(
    st.lists(st.lists(st.integers(0, 60_000), max_size=9), max_size=30),
    st.lists(st.integers(0, 30), max_size=4),
    st.sampled_from([MegatronFormat("uint16"), NumpyFormat("uint32", None), ArrowFormat(), MdsFormat(None)]),
)
def test_files_do_not_depend_on_blocks(tmp_path_factory, documents, cuts, form):
    folder = tmp_path_factory.mktemp("files")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(formats, "BATCH_ROWS", 5)
        patch.setattr(formats, "BATCH_TOKENS", 8)
        patch.setattr(formats, "LENGTHS_AT_ONCE", 4)
        cut = write(form, folder / "cut", documents, tuple(min(place, len(documents)) for place in cuts))
        assert cut == write(form, folder / "whole", documents)
