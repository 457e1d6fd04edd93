# SPDX-License-Identifier: Apache-2.0
"""Input, stages, rejects and output in a bucket, over HTTP: a real server of the S3 protocol on this machine."""

import dataclasses
import json
import os
import re
import subprocess
import sys
import time

import pytest

import curator_df as cdf
from curator_df.core.files import owner
from curator_df.core.files.storage import Folder
from curator_df.core.ranges.journal import Journal
from curator_df.core.runner import run
from curator_df.errors import OutputExistsError

pytest.importorskip("s3fs", reason="needs s3fs, and moto[server] to serve it")
pytest.importorskip("moto", reason="needs moto[server], a server of the S3 protocol")

ROWS = [{"id": n, "text": f"text {n * n % 17} and some more words that all of these have"} for n in range(60)]
FIRST = [n for n in range(60) if n * n % 17 not in {m * m % 17 for m in range(n)}]


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    # Not a pipe: nobody reads it, and the server stops when it is full.
    log = tmp_path_factory.mktemp("server") / "log"
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", "0"]
    with open(log, "w") as file, subprocess.Popen(command, stderr=file) as process:
        try:
            deadline = time.monotonic() + 60
            while not (found := re.search(r"Running on (http://\S+)", log.read_text())):
                if process.poll() is not None or time.monotonic() > deadline:
                    pytest.fail(f"the server did not start: {log.read_text()}")
                time.sleep(0.1)
            yield found[1]
        finally:
            process.terminate()


@pytest.fixture(scope="module")
def options(server):
    import s3fs

    options = {"key": "a", "secret": "b", "client_kwargs": {"endpoint_url": server}}
    s3fs.S3FileSystem(**options).call_s3("create_bucket", Bucket="bucket")
    for part in range(3):
        with s3fs.S3FileSystem(**options).open(f"bucket/in/{part}.jsonl", "w") as file:
            file.writelines(json.dumps(row) + "\n" for row in ROWS[20 * part : 20 * part + 20])
    return options


@pytest.fixture(scope="module", autouse=True)
def cluster():
    with cdf.start_cluster(memory="2GB", cpus=2) as running:
        yield running


@pytest.fixture
def docs(options):
    return cdf.read_jsonl("s3://bucket/in/*.jsonl", storage_options=options)


def ids_in(url, options):
    return cdf.read_parquet(url, storage_options=options).id.compute().tolist()


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
        docs, scheme=scheme, verify=0.99, workdir="s3://bucket/work", storage_options=options
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
