# SPDX-License-Identifier: Apache-2.0
"""Input, stages, rejects and output in a bucket, over HTTP: a real server of the S3 protocol on this machine."""

import json
import re
import subprocess
import sys
import time

import pytest

import curator_df as cdf
from curator_df.core import run

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
