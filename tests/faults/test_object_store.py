# SPDX-License-Identifier: Apache-2.0
"""Whole runs from a bucket into a bucket, killed with real signals; the server lives on, and another process ends them."""

import collections
import gzip
import io
import json
import os
import random
import re
import signal
import time

import pyarrow.parquet as pq
import pytest

from tests.faults.runs import PATIENCE_SECONDS, finish
from tests.io.s3_server import s3_server

pytest.importorskip("s3fs", reason="needs s3fs, and moto[server] to serve it")
pytest.importorskip("moto", reason="needs moto[server], a server of the S3 protocol")

pytestmark = [pytest.mark.slow, pytest.mark.timeout(2 * PATIENCE_SECONDS)]

ROWS = 3000
KINDS = 700
STAYS = [n for n in range(ROWS) if n % 5 != 0]
"""Rows that the step keeps."""

SCRIPT = """
import json, os, sys, time
import curator_df as cdf
from curator_df.exchange import exchange_plan
from curator_df.core.runner import run
from curator_df.exchange import key_stages

run.SMALL_RANGE_BYTES = int(os.environ.get("RANGE", "60_000"))  # many ranges from a small corpus,
exchange_plan.MOST_DIRECT_READS = 1                             # a stage that collects drops,
exchange_plan.choose_reducers = lambda *_: 12                   # many tasks in each,
merge = key_stages.run_merge                                    # and time to kill in them

def slow_merge(*arguments):
    time.sleep(float(os.environ.get("SLEEP", "0.2")))
    return merge(*arguments)

def slow(block):
    time.sleep(float(os.environ.get("SLEEP", "0.05")))
    return block.id % 5 != 0

key_stages.run_merge = slow_merge

if __name__ == "__main__":
    source, target, memory, form, on_existing = sys.argv[1:6]
    options = json.loads(os.environ["OPTIONS"])
    docs = cdf.read_jsonl(source, blocksize=os.environ.get("BLOCK", "20kB"), storage_options=options)
    docs = docs.curate.keep_where(slow)
    if "DROP" in os.environ:
        docs = docs.curate.drop_exact_duplicates(keep="last")
    how = {"rejects": target + "-rejects", "on_existing": on_existing, "storage_options": options}
    if "FOLDERS" in os.environ:
        docs = docs.assign(folder=docs.id % int(os.environ["FOLDERS"]))
        how["partition_on"] = "folder"
    with cdf.start_cluster(memory=memory, cpus=2):
        receipt = getattr(cdf, "write_" + form)(docs, target, **how)
    print(json.dumps(receipt.to_json()))
"""


class Bucket:
    """A bucket that keeps each version of each object, so that it tells what was ever written to it."""

    def __init__(self, options):
        import boto3

        self.options = options
        at = {
            "aws_access_key_id": options["key"],
            "aws_secret_access_key": options["secret"],
            "region_name": "us-east-1",
        }
        self.client = boto3.client("s3", **at, **options["client_kwargs"])
        self.client.create_bucket(Bucket="bucket")
        self.client.put_bucket_versioning(Bucket="bucket", VersioningConfiguration={"Status": "Enabled"})

    def write(self, key, content):
        self.client.put_object(Bucket="bucket", Key=key, Body=content)

    def read(self, key, **version):
        return self.client.get_object(Bucket="bucket", Key=key, **version)["Body"].read()

    def names(self, folder):
        """Return the names of the objects below a folder."""
        return [
            entry["Key"].removeprefix(f"{folder}/") for entry in self._listed("list_objects_v2", folder, "Contents")
        ]

    def files(self, folder):
        """Return the bytes of the files of an output by name, without the journal."""
        return {n: self.read(f"{folder}/{n}") for n in self.names(folder) if not n.startswith("_curator/")}

    def versions(self, folder):
        """Return the ids of all versions of each object that ever was below a folder, by name."""
        found = collections.defaultdict(list)
        for version in self._listed("list_object_versions", folder, "Versions"):
            found[version["Key"].removeprefix(f"{folder}/")].append(version["VersionId"])
        return found

    def noted(self, folder):
        """Return for each journal that ever was below a folder the numbers of what it noted as done, in order of time."""
        found = collections.defaultdict(list)
        for name, versions in sorted(self.versions(folder).items()):
            if journal := re.fullmatch(r"(.*?)_curator/done[^/]*", name):
                (version,) = versions  # written once
                lines = self.read(f"{folder}/{name}", VersionId=version).splitlines()
                found[journal[1]] += [json.loads(line)["number"] for line in lines]
        return dict(found)

    def uploads(self):
        """Return the names of objects of which parts were uploaded, and no more."""
        return [upload["Key"] for upload in self.client.list_multipart_uploads(Bucket="bucket").get("Uploads", ())]

    def _listed(self, call, folder, what):
        pages = self.client.get_paginator(call).paginate(Bucket="bucket", Prefix=f"{folder}/")
        return [entry for page in pages for entry in page.get(what, ())]


@pytest.fixture(scope="module")
def bucket(tmp_path_factory):
    with s3_server(tmp_path_factory.mktemp("server")) as options:
        bucket = Bucket(options)
        lines = [
            json.dumps({"id": n, "text": random.Random(n * n % KINDS).randbytes(150).hex()}).encode() + b"\n"
            for n in range(ROWS)
        ]
        for name, first, last in (("a.jsonl", 0, 2000), ("c.jsonl", 2300, 2600), ("d.jsonl", 2600, ROWS)):
            bucket.write(f"in/{name}", b"".join(lines[first:last]))
        bucket.write("in/b.jsonl.gz", gzip.compress(b"".join(lines[2000:2300])))
        yield bucket


@pytest.fixture
def run(start, tmp_path, bucket):
    """Start the script, which writes to a folder of the bucket."""
    (tmp_path / "script.py").write_text(SCRIPT)

    def run(target, form="parquet", *, source="in", on_existing="raise", **variables):
        variables = {"OPTIONS": json.dumps(bucket.options), "memory": "800MB", **variables}
        at = f"s3://bucket/{source}", f"s3://bucket/{target}"
        return start(tmp_path / "script.py", *at, step=form, on_existing=on_existing, **variables)

    return run


def kill_when(is_time, process):
    """Kill a run, with all of its processes, as soon as something is to be seen in the bucket."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not is_time():
        if process.poll() is not None:
            pytest.fail(f"the run ended early: {process.communicate()[1]}")
        if time.monotonic() > deadline:
            pytest.fail("nothing was to be seen")
        time.sleep(0.02)
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()


def require_nothing_left(bucket, *folders):
    kept = r"done-\d+-\d+\.jsonl|plan\.json|ranges\.npy|receipt\.json|rejects_of\.json"
    for folder in folders:
        names = [name for name in bucket.names(folder) if name.startswith("_curator/")]
        assert [name for name in names if not re.fullmatch(f"_curator/({kept})", name)] == []
    assert bucket.uploads() == []


@pytest.mark.parametrize(
    ("form", "resumed"),
    [
        # A run that is killed in the last stage of a drop, which writes, repeats no split either: it is always tested, below.
        pytest.param("jsonl", {"memory": "460MB", "BLOCK": "7kB"}, marks=pytest.mark.proof),
        pytest.param("parquet", {}, marks=pytest.mark.proof),
    ],
    ids=["jsonl, with another memory", "parquet"],
)
def test_a_killed_run_is_resumed_and_repeats_no_range(run, bucket, form, resumed):
    out, whole = f"{form}/out", f"{form}/whole"
    finish(run(whole, form, SLEEP="0"))
    process = run(out, form)
    kill_when(lambda: sum(name.startswith("_curator/done") for name in bucket.names(out)) >= 4, process)
    before = bucket.noted(out)[""]
    receipt = finish(run(out, form, on_existing="resume", SLEEP="0", **resumed))
    noted = bucket.noted(out)[""]
    assert 4 <= len(before) == receipt["ranges_resumed"] < receipt["ranges"]
    assert (receipt["rows_read"], receipt["rows_written"]) == (ROWS, len(STAYS))
    assert noted[: len(before)] == before
    assert sorted(noted) == list(range(receipt["ranges"]))
    for folder in (out, f"{out}-rejects"):
        written = {name: len(ids) for name, ids in bucket.versions(folder).items() if name.startswith("part-")}
        assert {written[name] for name in written if int(name.split("-")[1]) in before} == {1}
    assert len(bucket.files(out)) == receipt["ranges"]
    assert bucket.files(out) == bucket.files(whole)
    if form == "parquet":  # the rejects are Parquet in both, and their row groups follow the blocks
        assert bucket.files(f"{out}-rejects") == bucket.files(f"{whole}-rejects")
    require_nothing_left(bucket, out, f"{out}-rejects")


STAGES = {
    "keys": r"_curator/stages/[^/]+/_curator/done.*",
    "merge": r"_curator/stages/[^/]+/merge/_curator/done.*",
    "collect": r"_curator/stages/[^/]+/collect/_curator/done.*",
    "write": r"_curator/done.*",
}
"""What their journals are called."""


@pytest.mark.parametrize(
    "stage", [pytest.param(stage, marks=() if stage == "merge" else pytest.mark.proof) for stage in STAGES]
)
def test_a_drop_whose_run_is_killed_in_any_stage_is_resumed_and_repeats_no_task(run, bucket, stage):
    out = f"drop/{stage}"
    process = run(out, DROP="1")
    most = 1 if stage in ("merge", "collect") else 3  # there the records of short tasks are written together
    kill_when(lambda: sum(re.fullmatch(STAGES[stage], name) is not None for name in bucket.names(out)) >= most, process)
    before = bucket.noted(out)
    receipt = finish(run(out, on_existing="resume", DROP="1", SLEEP="0", memory="460MB", BLOCK="7kB"))
    noted = bucket.noted(out)
    assert len(before) == list(STAGES).index(stage) + 1
    assert len(noted) == len(STAGES)
    for journal, numbers in noted.items():
        assert numbers[: len(before.get(journal, ()))] == before.get(journal, [])
        assert sorted(numbers) == list(range(len(numbers)))  # none twice
    stays = sorted({n * n % KINDS: n for n in STAYS}.values())
    read = [pq.read_table(io.BytesIO(content))["id"].to_pylist() for content in bucket.files(out).values()]
    assert [number for numbers in read for number in numbers] == stays
    assert (receipt["rows_read"], receipt["rows_written"]) == (ROWS, len(stays))
    require_nothing_left(bucket, out, f"{out}-rejects")


@pytest.mark.parametrize(
    "more",
    [
        pytest.param({}, marks=pytest.mark.proof, id="a file at a time"),
        pytest.param({"FOLDERS": "40"}, id="forty at a time"),
    ],
)
def test_large_objects_take_no_more_than_is_allowed(run, bucket, more):
    rows = (json.dumps({"id": n, "text": f"{n * n} " + "some more words " * 250}) + "\n" for n in range(32_000))
    bucket.write("large/a.jsonl", "".join(rows).encode())  # 130 MB
    receipt = finish(
        run(
            f"large-{len(more)}",
            "jsonl",
            source="large",
            memory="460MB",
            BLOCK="2MB",
            RANGE="64_000_000",
            SLEEP="0",
            **more,
        )
    )
    assert receipt["rows_written"] == 25_600
    assert receipt["retries"] == {}
    assert receipt["measured_bytes"] <= receipt["allowed_bytes"]


def test_an_upload_in_parts_that_was_killed_leaves_none_behind(run, bucket):
    lines = (json.dumps({"id": n, "text": random.Random(n).randbytes(10_000).hex()}) + "\n" for n in range(1500))
    bucket.write("long/a.jsonl", "".join(lines).encode())  # 30 MB
    how = {"source": "long", "RANGE": "15_000_000", "BLOCK": "300kB"}
    process = run("parts", "jsonl", **how, SLEEP="0.2")
    kill_when(bucket.uploads, process)
    assert set(bucket.uploads()) <= {"parts/part-000000-000.jsonl", "parts/part-000001-000.jsonl"}
    receipt = finish(run("parts", "jsonl", on_existing="resume", **how, SLEEP="0"))
    assert receipt["rows_written"] == 1200
    lines = b"".join(bucket.files("parts").values()).splitlines()
    assert [json.loads(line)["id"] for line in lines] == [n for n in range(1500) if n % 5 != 0]
    require_nothing_left(bucket, "parts", "parts-rejects")
