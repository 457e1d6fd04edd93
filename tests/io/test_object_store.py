# SPDX-License-Identifier: Apache-2.0
"""Input, stages, rejects and output in a bucket, over HTTP: a real server of the S3 protocol on this machine."""

import dataclasses
import gzip
import json
import os
import time

import dask
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard

import curator_df as cdf
from curator_df.core.planning.lowering import lower
from curator_df.core.ranges import journal
from curator_df.core.ranges.journal import Journal
from curator_df.core.runner import run
from curator_df.core.runner.events import TaskEnded
from curator_df.core.runner.session import current_session
from curator_df.errors import InputChangedError, OutputChangedError, OutputExistsError
from curator_df.files import owner
from curator_df.files.storage import Folder
from curator_df.io.output.formats import ParquetFormat, file_sink
from curator_df.io.streams.file_stream import open_bytes
from tests.core.runner.fake_client import inline_cluster
from tests.io.s3_server import s3_server

pytest.importorskip("s3fs", reason="needs s3fs, and moto[server] to serve it")
pytest.importorskip("moto", reason="needs moto[server], a server of the S3 protocol")

ROWS = [{"id": n, "text": f"text {n * n % 17} and some more words that all of these have"} for n in range(60)]
FIRST = [n for n in range(60) if n * n % 17 not in {m * m % 17 for m in range(n)}]


@pytest.fixture(scope="module")
def options(tmp_path_factory):
    import s3fs

    with s3_server(tmp_path_factory.mktemp("server")) as options:
        s3fs.S3FileSystem(**options).call_s3("create_bucket", Bucket="bucket")
        for part in range(3):
            with s3fs.S3FileSystem(**options).open(f"bucket/in/{part}.jsonl", "w") as file:
                file.writelines(json.dumps(row) + "\n" for row in ROWS[20 * part : 20 * part + 20])
        yield options


@pytest.fixture(scope="module", autouse=True)
def cluster():
    """Tasks of this process; workers of their own write to a bucket in tests/faults/test_object_store.py."""
    with inline_cluster("2GB", 2) as running:
        yield running


@pytest.fixture
def docs(options):
    return cdf.read_jsonl("s3://bucket/in/*.jsonl", storage_options=options)


def ids_in(url, options):
    return cdf.read_parquet(url, storage_options=options).id.compute().tolist()


def files_in(url, options=None):
    """Return the bytes of the files of an output by name, without the journal."""
    folder = Folder(str(url), options or {})
    return {name: folder.read(name) for name in folder.names() if not name.startswith("_curator/")}


def test_a_drop_and_its_stages(docs, options, monkeypatch):
    monkeypatch.setattr(run, "SMALL_RANGE_BYTES", 300)
    clean = docs.curate.drop_exact_duplicates()
    receipt = cdf.write_parquet(clean, "s3://bucket/out", rejects="s3://bucket/rejects", storage_options=options)
    assert ids_in("s3://bucket/out", options) == FIRST
    assert sorted(ids_in("s3://bucket/rejects", options)) == sorted(set(range(60)) - set(FIRST))
    assert receipt.exchanges[0].keys == 60


def test_near_duplicates_and_their_stages(docs, options):
    scheme = cdf.minhash.Scheme("words", 2, num_bands=6, minhashes_per_band=2)
    groups = cdf.find_near_duplicates(
        docs, scheme=scheme, jaccard_threshold=0.99, workdir="s3://bucket/work", storage_options=options
    )
    assert len(groups) == 60
    assert groups.kept.sum().compute() == len(FIRST)
    cdf.write_parquet(cdf.drop_near_duplicates(docs, groups=groups), "s3://bucket/near", storage_options=options)
    assert ids_in("s3://bucket/near", options) == FIRST


def test_an_interrupted_run_goes_on(docs, options, monkeypatch):
    monkeypatch.setattr(run, "SMALL_RANGE_BYTES", 300)
    finished = []
    record = run.Journal.record

    def stop_after_three(journal, manifests):
        record(journal, manifests)
        finished.append(journal.folder.url)
        if finished.count("s3://bucket/again") == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr(run.Journal, "record", stop_after_three)
    clean = docs.curate.drop_exact_duplicates()
    with pytest.raises(KeyboardInterrupt):
        cdf.write_parquet(clean, "s3://bucket/again", storage_options=options)
    monkeypatch.setattr(run.Journal, "record", record)
    receipt = cdf.write_parquet(clean, "s3://bucket/again", on_existing="resume", storage_options=options)
    assert receipt.ranges_resumed >= 3
    assert ids_in("s3://bucket/again", options) == FIRST


@pytest.mark.parametrize("written", [4, 60_000_000], ids=["in one request", "in parts"])
def test_a_task_that_ends_late_leaves_what_a_newer_one_wrote(options, written):
    folder = Folder("s3://bucket/late", options)
    with folder.create("part-000001-000.parquet") as late:
        late.write(bytes(written))
        with folder.create("part-000001-000.parquet") as newer:
            newer.write(b"whole")
            newer.commit(1)
    assert folder.read("part-000001-000.parquet") == b"whole"
    system, _ = folder._filesystem
    assert not system.call_s3("list_multipart_uploads", Bucket="bucket").get("Uploads")


def test_what_was_sealed_and_not_committed_goes_unless_another_has_written_it(options):
    folder = Folder("s3://bucket/sealed", options)
    with folder.create("a") as file, folder.create("b") as other:
        file.write(b"mine")
        file.seal()
        other.write(b"mine too")
        other.seal()
        folder.write("b", b"newer")
    assert folder.names() == ["b"]
    assert folder.read("b") == b"newer"


def test_one_run_at_a_time_writes_to_a_folder(options, monkeypatch):
    monkeypatch.setattr(owner, "YIELD_SECONDS", 0.5)
    folder = Folder("s3://bucket/mine", options)
    with Journal(folder):
        for _ in range(3):
            with pytest.raises(OutputExistsError, match=f"process {os.getpid()} on "), Journal(folder):
                pass
    assert folder.names() == []


def test_a_run_of_another_machine_has_the_folder_while_it_gives_signs_of_life(options, monkeypatch):
    monkeypatch.setattr(owner, "BEAT_SECONDS", 0.1)
    monkeypatch.setattr(owner, "GONE_SECONDS", 3.0)
    folder = Folder("s3://bucket/theirs", options)
    other = owner.Owner(folder)
    other._process = dataclasses.replace(other._process, boot="another", host="far")
    other.claim()
    with pytest.raises(OutputExistsError, match="on far, since "), Journal(folder):
        pass
    other._ended.set()  # and then it dies
    other._thread.join()
    with Journal(folder):
        assert len(folder.names()) == 1


ODD = [
    *"aab",
    "../up",
    "a/b",
    "",
    " ",
    "100%",
    "%41",
    "ünï",
    "漢字",
    "a=b",
    ".",
    "_x",
    "*",
    "a+b c",
    "?versionId=1",
    None,
]


@pytest.fixture
def keyed(options):
    """Rows of which each has one of the odd texts as its key."""
    rows = ({"id": n, "key": ODD[n % len(ODD)], "text": f"text {n % 50} and more"} for n in range(300))
    Folder("s3://bucket/keyed", options).write("a.jsonl", "".join(json.dumps(row) + "\n" for row in rows).encode())
    return cdf.read_jsonl("s3://bucket/keyed/a.jsonl", storage_options=options)


@pytest.mark.parametrize("form", [pytest.param("jsonl", marks=pytest.mark.proof), "parquet"])
def test_folders_of_values_are_those_of_a_local_disk(keyed, options, tmp_path, monkeypatch, form):
    monkeypatch.setattr(run, "SMALL_RANGE_BYTES", 4_000)
    write = getattr(cdf, f"write_{form}")
    write(keyed, tmp_path / "out", partition_on="key")
    receipt = write(keyed, f"s3://bucket/keys-{form}", partition_on="key", storage_options=options)
    assert receipt.ranges > 3
    assert receipt.rows_written == 300
    assert len(receipt.rows_by_folder) == len(set(ODD))
    assert files_in(f"s3://bucket/keys-{form}", options) == files_in(tmp_path / "out")
    again = write(keyed, f"s3://bucket/keys-{form}", partition_on="key", on_existing="resume", storage_options=options)
    assert again.rows_by_folder == receipt.rows_by_folder


def test_the_table_of_each_value_is_read_back(keyed, options):
    split = cdf.write_by(keyed, "s3://bucket/split", partition_on="key", storage_options=options)
    rows = keyed.compute()
    assert set(split) == set(ODD)
    for value, df in split.items():
        expected = rows[rows.key.isna() if value is None else rows.key == value]
        pd.testing.assert_frame_equal(df.compute().reset_index(drop=True), expected.reset_index(drop=True))


def test_several_outputs_with_rejects_are_those_of_a_local_disk(keyed, options, tmp_path, monkeypatch):
    monkeypatch.setattr(run, "SMALL_RANGE_BYTES", 4_000)
    unique = keyed.curate.drop_exact_duplicates()
    chains = {"all": keyed, "unique": unique, "even": unique.curate.keep_where("id % 2 == 0")}
    here, there = str(tmp_path), "s3://bucket/many"
    for home, storage_options in ((here, None), (there, options)):
        receipts = cdf.write_many(
            {f"{home}/{name}": chain for name, chain in chains.items()},
            rejects={f"{home}/even": f"{home}/odd"},
            storage_options=storage_options,
        )
        assert [receipt.rows_written for receipt in receipts.values()] == [300, 50, 25]
    for name in (*chains, "odd"):
        assert files_in(f"{there}/{name}", options) == files_in(f"{here}/{name}")
    assert not any(name.startswith("_curator/stages") for name in Folder(f"{there}/all", options).names())


def test_rejects_and_stages_may_lie_on_another_file_system(keyed, options, tmp_path):
    kept = keyed.curate.drop_exact_duplicates()
    how = {"rejects": tmp_path / "rejects", "workdir": tmp_path / "work", "storage_options": options}
    cdf.write_parquet(kept, "s3://bucket/apart", **how)
    assert ids_in("s3://bucket/apart", options) == list(range(50))
    assert sorted(pd.read_parquet(tmp_path / "rejects").id) == list(range(50, 300))
    assert list((tmp_path / "work").rglob("*.*")) == []


@pytest.mark.parametrize(
    "suffix", [".jsonl", pytest.param(".jsonl.gz", marks=pytest.mark.proof), ".jsonl.zst", ".parquet"]
)
def test_large_files_are_read_in_pieces(options, tmp_path, monkeypatch, suffix):
    monkeypatch.setattr(run, "SMALL_RANGE_BYTES", 2_000_000)
    rows = pa.table({"id": range(24_000), "text": [f"{n} " + "ünï text " * (n % 80) for n in range(24_000)]})
    if suffix == ".parquet":
        pq.write_table(rows, tmp_path / "a.parquet", row_group_size=2_000, compression="none")
    else:
        content = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows.to_pylist()).encode()
        assert len(content) > 10_000_000  # s3fs asks for 5 MB at a time, or 50
        pack = {".gz": gzip.compress, ".zst": zstandard.compress, ".jsonl": bytes}[suffix[suffix.rindex(".") :]]
        (tmp_path / f"a{suffix}").write_bytes(pack(content))
    url = f"s3://bucket/large/a{suffix}"
    Folder("s3://bucket/large", options).write(f"a{suffix}", (tmp_path / f"a{suffix}").read_bytes())
    read = cdf.read_parquet if suffix == ".parquet" else cdf.read_jsonl
    docs = read(url, blocksize="2MB", storage_options=options)
    there, here = docs.compute(), read(tmp_path / f"a{suffix}", blocksize="7MB").compute()
    pd.testing.assert_frame_equal(there, here)  # with the addresses, which are the index
    receipt = cdf.write_parquet(docs.curate.keep_where("id % 3 == 0"), tmp_path / "out")
    assert pd.read_parquet(tmp_path / "out").id.tolist() == list(range(0, 24_000, 3))
    assert (receipt.ranges > 3) is (suffix in {".jsonl", ".parquet"})  # a compressed file is not split


@pytest.fixture
def asked(monkeypatch):
    """Bytes that were asked of the store for files that are open, in each request."""
    import s3fs

    requests, fetch = [], s3fs.core.S3File._fetch_range

    def count(file, start, end):
        requests.append(end - start)
        return fetch(file, start, end)

    monkeypatch.setattr(s3fs.core.S3File, "_fetch_range", count)
    return requests


def test_little_is_asked_for_ahead_of_what_is_read(options, asked):
    Folder("s3://bucket/ahead", options).write("a.jsonl", b'{"id": 1}\n' * 2_000_000)
    with open_bytes("s3://bucket/ahead/a.jsonl", options) as stream:
        for _ in range(40):
            stream.readinto(memoryview(bytearray(1 << 17)))
    assert len(asked) <= 3
    assert sum(asked) < 40 * (1 << 17) + (3 << 20)


def test_columns_that_are_read_in_turn_are_asked_for_once(options, tmp_path, asked):
    texts = {name: [f"{name} {n}" + f" {n * n}" * 150 for n in range(3_000)] for name in "abcd"}
    pq.write_table(pa.table(texts), tmp_path / "a.parquet", compression="none", use_dictionary=False)
    content = (tmp_path / "a.parquet").read_bytes()
    assert len(content) > 10_000_000
    Folder("s3://bucket/turns", options).write("a.parquet", content)
    docs = cdf.read_parquet("s3://bucket/turns/a.parquet", blocksize="64MB", storage_options=options)  # one partition
    del asked[:]
    with dask.config.set(scheduler="synchronous"):
        assert docs.compute().a.tolist() == texts["a"]
    assert sum(asked) < 2 * len(content)


def test_little_is_held_of_what_is_written(options):
    folder, most = Folder("s3://bucket/held", options), 0
    with folder.create("a") as file:
        for _ in range(60):
            file.write(bytes(1 << 18))
            most = max(most, file._file.buffer.tell())
        file.commit()
    assert most < 6 << 20
    assert folder.size("a") == 60 << 18


@pytest.fixture
def uploading(options):
    """Begin uploads in parts, and end none of them."""
    system = Folder("s3://bucket", options).filesystem

    def begin(*keys):
        for key in keys:
            system.call_s3("create_multipart_upload", Bucket="bucket", Key=key)

    yield begin
    system.clear_multipart_uploads("bucket")


def left(options):
    return sorted(
        upload["Key"] for upload in Folder("s3://bucket", options).filesystem.list_multipart_uploads("bucket")
    )


def test_uploads_that_a_killed_process_left_are_ended_and_those_of_others_are_not(docs, options, uploading):
    mine = ["ended/part-000007-000.parquet", "ended/_quarantine/part-000001.jsonl", "ended/_curator/stages/a/keys/b"]
    others = [
        "ended/thesis.pdf",
        "ended/more/part-000007-000.parquet",
        "ended-too/part-000000-000.parquet",
        "in/1.jsonl",
    ]
    uploading(*mine, *others)
    cdf.write_parquet(docs, "s3://bucket/ended", storage_options=options)
    assert left(options) == sorted(others)


def test_a_run_does_without_permission_to_end_uploads(docs, options, uploading, monkeypatch, caplog):
    kind = type(Folder("s3://bucket", options).filesystem)
    call = kind.call_s3

    def refuse(system, method, *arguments, **named):
        if method == "list_multipart_uploads":
            raise PermissionError("Access Denied")
        return call(system, method, *arguments, **named)

    monkeypatch.setattr(kind, "call_s3", refuse)
    with caplog.at_level("INFO", "curator_df"):
        cdf.write_parquet(docs, "s3://bucket/refused", storage_options=options)
    assert "cannot abort unfinished uploads in s3://bucket/refused: Access Denied" in caplog.text
    assert ids_in("s3://bucket/refused", options) == list(range(60))


def test_all_pages_of_a_list_of_uploads_are_read(docs, options, uploading, monkeypatch):
    uploading(*(f"paged/part-00000{n}-000.parquet" for n in range(5)))
    folder = Folder("s3://bucket/paged", options)
    kind = type(folder.filesystem)
    call, asked = kind.call_s3, []

    def two_at_a_time(system, method, **named):
        found = call(system, method, **{name: named[name] for name in named if "Marker" not in name})
        if method == "list_multipart_uploads":
            asked.append(named.get("KeyMarker"))
            rest = [upload for upload in found["Uploads"] if upload["Key"] > named.get("KeyMarker", "")]
            last = {"NextKeyMarker": rest[:2][-1]["Key"], "NextUploadIdMarker": rest[:2][-1]["UploadId"]}
            found = {"Uploads": rest[:2], "IsTruncated": len(rest) > 2, **last}
        return found

    monkeypatch.setattr(kind, "call_s3", two_at_a_time)
    journal.end_uploads(folder, file_sink(docs, "test", folder.url, ParquetFormat("zstd"), 1, None, options))
    monkeypatch.undo()
    assert asked == [None, "paged/part-000001-000.parquet", "paged/part-000003-000.parquet"]
    assert left(options) == []


def test_an_object_that_is_replaced_is_an_error_before_and_while_it_is_read(options):
    import s3fs

    lines = [b'{"id": %d, "text": "%s"}\n' % (n, b"a" * 1000) for n in range(6_000)]
    store = s3fs.S3FileSystem(**options)
    store.pipe_file("bucket/changing/a.jsonl", b"".join(lines))
    for url in ("s3://bucket/changing/*.jsonl", "s3://bucket/changing/a.jsonl"):
        listed = cdf.read_jsonl(url, storage_options=options)
        source = lower(listed).source
        assert len(listed) == 6_000  # the store says of one file what it says in a list
    blocks = source.blocks(source.cut(1 << 40)[0], block_bytes=100_000)
    next(blocks)
    other = s3fs.S3FileSystem(**options, skip_instance_cache=True)
    other.pipe_file("bucket/changing/a.jsonl", b"".join(lines).replace(b"a" * 1000, b"b" * 1000))
    started = time.monotonic()
    with pytest.raises(
        InputChangedError,
        match=r"a\.jsonl' changed after it was listed: the store has another version of it now than when it was listed",
    ):
        list(blocks)
    with pytest.raises(
        InputChangedError, match=r"a\.jsonl' changed after it was listed: its ETag or .* when it was listed\."
    ):
        listed.compute()
    assert time.monotonic() - started < 20  # it is not taken for a store that is busy


def test_a_finished_object_that_is_deleted_ends_the_run(docs, options, monkeypatch):
    monkeypatch.setattr(run, "SMALL_RANGE_BYTES", 300)
    output = Folder("s3://bucket/deleted", options)

    def delete(event):
        files = [name for name in output.names() if name.startswith("part-")]
        if isinstance(event, TaskEnded) and files and not deleted:
            output.delete(files[0])
            deleted.append(files[0])

    deleted = []
    watchers = current_session().watchers
    watchers.append(delete)
    try:
        with pytest.raises(OutputChangedError, match=r"deleted/part-.* was written by this run, but is now missing"):
            cdf.write_parquet(docs, output.url, storage_options=options)
    finally:
        watchers.remove(delete)
    cdf.write_parquet(docs, output.url, storage_options=options, on_existing="resume")
    assert ids_in(output.url, options) == list(range(60))
