# SPDX-License-Identifier: Apache-2.0
"""Input on the Hugging Face hub, over HTTP: a server of its API on this machine."""

import gzip
import io
import json
import re

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import curator_df as cdf
from curator_df.core.planning.lowering import lower
from curator_df.errors import InputError, ParameterError, RemoteFileError, ResumeError
from curator_df.files import retry
from tests.core.runner.fake_client import inline_cluster
from tests.io.hub_server import TOKEN, hub_server, once

pytest.importorskip("huggingface_hub", reason="needs the hub extra (huggingface_hub)")


@pytest.fixture
def hub(monkeypatch):
    monkeypatch.setenv("HF_HUB_DISABLE_XET", "1")
    monkeypatch.setattr(retry, "FIRST_WAIT_SECONDS", 0.05)
    with hub_server() as running:
        yield running


@pytest.fixture(scope="module")
def cluster():
    with inline_cluster(memory="2GB", cpus=2) as running:
        yield running


def parquet(*ids):
    content = io.BytesIO()
    pq.write_table(pa.table({"id": list(ids), "text": [f"text {n}" for n in ids]}), content)
    return content.getvalue()


def sentences(number):
    content = io.BytesIO()
    pq.write_table(pa.table({"id": [number], "text": [f"one two three four five six seven eight {number}"]}), content)
    return content.getvalue()


def jsonl(*ids):
    return b"".join(json.dumps({"id": n, "text": f"text {n}"}).encode() + b"\n" for n in ids)


def ids_of(df):
    return df.compute()["id"].tolist()


WARC = b"\r\n".join(
    [
        b"WARC/1.0",
        b"WARC-Type: conversion",
        b"WARC-Target-URI: http://a.org/",
        b"WARC-Date: 2026-01-01T00:00:00Z",
        b"WARC-Record-ID: <urn:uuid:1>",
        b"Content-Type: text/plain",
        b"Content-Length: 4\r\n",
        b"text\r\n\r\n",
    ]
)
READERS = {
    "read_parquet": ("data/a.parquet", parquet(1, 2)),
    "read_jsonl": ("data/a.jsonl.gz", gzip.compress(jsonl(1, 2))),
    "read_csv": ("data/a.csv", b"id,text\n1,a\n2,b\n"),
    "read_text_files": ("data/a.txt", b"some text"),
    "read_warc": ("data/a.warc", WARC),
}


@pytest.mark.parametrize("reader", READERS)
def test_every_reader_reads_from_the_hub(cluster, hub, reader):
    name, content = READERS[reader]
    hub.add("org/corpus", {name: content}, private=True)
    docs = getattr(cdf, reader)("hf://datasets/org/corpus/data", storage_options=hub.options)
    assert len(docs.compute()) == {"read_text_files": 1, "read_warc": 1}.get(reader, 2)


@pytest.mark.parametrize(
    "path",
    [
        "data/*.parquet",
        "data",
        "data/a.parquet",
        "**/a.parquet",
        "d*/[a].parquet",
        "",
        "@main/data",
        "@v1/data/a.parquet",
        "@refs%2Fconvert%2Fparquet/data",
        "@refs/convert/parquet/data",
    ],
)
def test_files_folders_and_globs_of_the_hub_are_pinned_to_a_commit(hub, path):
    repository = hub.add("org/corpus", {"data/a.parquet": parquet(1, 2)})
    (commit,) = repository.trees
    repository.branches |= dict.fromkeys(("v1", "refs/convert/parquet"), commit)
    url = f"hf://datasets/org/corpus{path if path.startswith('@') else '/' + path}"
    docs = cdf.read_parquet(url, storage_options=hub.options)
    assert ids_of(docs) == [1, 2]
    said = dict(cdf.explain(docs, memory="2GB", cpus=2).remarks)["pinned"]
    assert said == f"hf://datasets/org/corpus at commit {commit}"


def test_a_branch_that_moves_does_not_change_what_a_table_reads(cluster, hub, tmp_path):
    repository = hub.add("org/corpus", {"a.parquet": parquet(1), "b.parquet": parquet(2)})
    docs = cdf.read_parquet("hf://datasets/org/corpus/*.parquet", storage_options=hub.options)
    first = repository.branches["main"]
    repository.commit({"a.parquet": parquet(7, 8), "c.parquet": parquet(9)})
    receipt = cdf.write_parquet(docs, tmp_path / "out")
    assert ids_of(cdf.read_parquet(tmp_path / "out")) == [1, 2]
    assert receipt.settings["pinned"].startswith(f"hf://datasets/org/corpus at commit {first}: read to the end")
    plan = (tmp_path / "out/_curator/plan.json").read_text()
    assert f"2 files, {receipt.input_bytes:,} bytes, hf://datasets/org/corpus at commit {first}" in plan


def test_a_run_resumes_if_the_files_of_the_branch_are_the_same_and_else_says_that_they_changed(cluster, hub, tmp_path):
    files = {"a.parquet": parquet(1), "b.parquet": parquet(2)}
    repository = hub.add("org/corpus", files)

    def run():
        docs = cdf.read_parquet("hf://datasets/org/corpus", storage_options=hub.options)
        return cdf.write_parquet(docs, tmp_path / "out", on_existing="resume")

    run()
    repository.commit({**files, "README.md": b"# A card"})
    assert run().rows_written == 2
    repository.commit({**files, "b.parquet": parquet(3)})
    with pytest.raises(ResumeError, match=r"the list of input files .* changed from .* at commit [0-9a-f]{40} to "):
        run()


URL = "hf://datasets/org/corpus"
OTHER_TABLES = {
    "join": lambda docs, read, _: cdf.join(docs, read(), on="id", suffix="_other"),
    "concat": lambda docs, read, _: cdf.concat([docs, read()]),
    "drop_contaminated": lambda docs, _, options: cdf.drop_contaminated(
        docs, f"{URL}/*.parquet", storage_options=options
    ),
}
"""Operators of two tables, with a table on the hub as the second."""


@pytest.mark.parametrize("operator", OTHER_TABLES)
def test_the_identity_of_a_chain_has_the_files_of_another_table_and_not_their_commit(cluster, hub, tmp_path, operator):
    files = {"a.parquet": sentences(1), "b.parquet": sentences(2)}
    repository = hub.add("org/corpus", files)
    (tmp_path / "in.parquet").write_bytes(parquet(1, 2))

    def identity():
        def read():
            return cdf.read_parquet(URL, storage_options=hub.options)

        program = lower(OTHER_TABLES[operator](cdf.read_parquet(tmp_path / "in.parquet"), read, hub.options))
        return program.source.fingerprint, program.fingerprint

    before = identity()
    repository.commit({**files, "README.md": b"# A card"})
    assert identity() == before
    repository.commit({**files, "b.parquet": sentences(3)})
    assert identity() != before


def test_a_join_with_a_table_on_the_hub_resumes_after_its_branch_has_moved(cluster, hub, tmp_path):
    files = {"a.parquet": parquet(1), "b.parquet": parquet(2)}
    repository = hub.add("org/corpus", files)
    (tmp_path / "in.parquet").write_bytes(parquet(1, 2))

    def run():
        other = cdf.read_parquet("hf://datasets/org/corpus", storage_options=hub.options)
        docs = cdf.join(cdf.read_parquet(tmp_path / "in.parquet"), other, on="id", columns=["text"], suffix="_other")
        return cdf.write_parquet(docs, tmp_path / "out", on_existing="resume")

    assert run().rows_written == 2
    repository.commit({**files, "README.md": b"# A card"})
    assert run().rows_written == 2
    repository.commit({**files, "b.parquet": parquet(3)})
    with pytest.raises(ResumeError, match=r"the file 'hf://datasets/org/corpus/b\.parquet' of the other table changed"):
        run()


def test_groups_hold_for_the_same_files_of_another_commit(cluster, hub, tmp_path):
    files = {"a.parquet": parquet(1, 1), "b.parquet": parquet(2)}
    repository = hub.add("org/corpus", files)

    def read():
        return cdf.read_parquet("hf://datasets/org/corpus", storage_options=hub.options)

    groups = cdf.find_exact_duplicates(read(), workdir=tmp_path)
    repository.commit({**files, "README.md": b"# A card"})
    parts = cdf.split_rows(read(), {"train": 0.5, "test": 0.5}, seed=1, groups=groups)
    assert sorted(n for part in parts.values() for n in ids_of(part)) == [1, 1, 2]
    assert ids_of(cdf.drop_exact_duplicates(read(), groups=groups)) == [1, 2]


def test_files_of_one_call_are_pinned_with_one_request(hub):
    repository = hub.add("org/corpus", {f"{n:02}.parquet": parquet(n) for n in range(20)})
    urls = [f"hf://datasets/org/corpus/{n:02}.parquet" for n in range(20)]
    docs = cdf.read_parquet(urls, storage_options=hub.options)
    assert hub.count("GET", "/api/datasets/org/corpus/revision") <= 3
    assert ids_of(docs) == list(range(20))
    assert hub.count("GET", "/tree/") <= 4  # the files of a commit are listed once, and not for each file
    assert len(repository.trees) == 1


def test_a_busy_hub_and_a_lost_connection_are_tried_again(hub, monkeypatch):
    monkeypatch.setattr("huggingface_hub.utils._http.time.sleep", lambda _: None)
    hub.add("org/corpus", {"a.parquet": parquet(1, 2)})
    for part in ("/api/datasets/org/corpus", "/lfs/"):
        for fault in ("503", "reset"):
            hub.fault = once(part, fault)
            assert ids_of(cdf.read_parquet("hf://datasets/org/corpus", storage_options=hub.options)) == [1, 2]


@pytest.mark.parametrize(
    ("url", "token", "error", "said"),
    [
        (
            "datasets/org/missing/a.parquet",
            TOKEN,
            InputError,
            "is in no repository of the hub that this token may read",
        ),
        (
            "datasets/org/corpus/a.parquet",
            False,
            InputError,
            "it does not exist, or it is private.* Log in with `hf auth login`",
        ),
        ("datasets/org/corpus/a.parquet", "hf_wrong", RemoteFileError, r"the hub refused the token \(.*401.*HF_TOKEN"),
        (
            "datasets/org/corpus@v9/a.parquet",
            TOKEN,
            InputError,
            "has a revision that does not exist. Use a branch, tag or",
        ),
        (
            "datasets/org/corpus/b.parquet",
            TOKEN,
            InputError,
            r"nothing matches 'hf://datasets/org/corpus@[0-9a-f]{40}/b",
        ),
        (
            "datasets",
            TOKEN,
            ParameterError,
            r"is not an address on the hub: .*[^.]\. Use hf://datasets/organization/name/path",
        ),
    ],
)
def test_what_the_hub_refuses_is_an_error_that_says_what_to_do(hub, url, token, error, said):
    hub.add("org/corpus", {"a.parquet": parquet(1)}, private=True)
    with pytest.raises(error, match=said) as refused:
        cdf.read_parquet(f"hf://{url}", storage_options={"endpoint": hub.url, "token": token})
    assert type(refused.value) is error
    assert len(hub.requests) < 12


@pytest.mark.parametrize(
    ("status", "code", "error", "said"),
    [
        (403, "GatedRepo", InputError, "is in a gated repository, .* Accept the conditions"),
        (403, "", RemoteFileError, r"the hub refused the token \(.*403"),
    ],
)
def test_a_repository_with_conditions_is_an_error_that_says_what_to_do(hub, status, code, error, said):
    hub.add("org/corpus", {"a.parquet": parquet(1)})
    hub.refused = (status, code)
    with pytest.raises(error, match=said):
        cdf.read_parquet("hf://datasets/org/corpus", storage_options=hub.options)


def test_a_token_that_is_revoked_during_a_run_is_an_error_of_ours(hub):
    hub.add("org/corpus", {"a.parquet": parquet(1)}, private=True)
    docs = cdf.read_parquet("hf://datasets/org/corpus", storage_options=hub.options)
    hub.refused = (401, "")
    with pytest.raises(RemoteFileError, match="the hub refused the token"):
        docs.compute()
    hub.refused = (410, "")
    with pytest.raises(RemoteFileError, match=r"the hub refused the request \(.*410"):
        docs.compute()


def test_a_store_that_refuses_to_be_read_is_no_damaged_file(tmp_path, monkeypatch):
    memory = fsspec.filesystem("memory")
    memory.pipe("/refused/a.parquet", parquet(1, 2))
    docs = cdf.read_parquet("memory://refused/a.parquet")

    def refused(*_):
        raise PermissionError(13, "Forbidden")

    monkeypatch.setattr(type(memory.open("/refused/a.parquet")), "read", refused)
    with pytest.raises(
        RemoteFileError,
        match=r"permission to read 'memory://.*/a.parquet' was refused: .*Forbidden. Check the credentials",
    ):
        docs.compute()


def test_a_hub_that_is_offline_is_not_tried_again(hub, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    from huggingface_hub.utils import close_session

    close_session()
    with pytest.raises(RemoteFileError, match="cannot be reached, because HF_HUB_OFFLINE is set"):
        cdf.read_parquet("hf://datasets/org/offline", storage_options=hub.options)
    assert hub.requests == []
    close_session()


@pytest.mark.parametrize(
    "write",
    [
        lambda docs, url: cdf.write_many({url: docs}),
        lambda docs, url: cdf.write_by(docs, url, partition_on="text"),
        cdf.checkpoint,
        cdf.shuffle_rows,
        lambda docs, url: cdf.blend({"a": docs}, url, epochs={"a": 1}),
        lambda docs, url: cdf.write_parquet(docs, "out", rejects=url),
        lambda docs, url: cdf.write_parquet(docs, "out", workdir=url),
        lambda docs, url: cdf.find_exact_duplicates(docs, workdir=url),
    ],
)
def test_an_output_on_the_hub_is_refused_and_the_error_names_push_to_hub(cluster, tmp_path, monkeypatch, write):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "in.jsonl").write_bytes(jsonl(1))
    said = re.escape("'hf://datasets/org/out' cannot be written to") + ".*push_to_hub"
    with pytest.raises(ParameterError, match=said):
        write(cdf.read_jsonl("in.jsonl"), "hf://datasets/org/out")
    assert not (tmp_path / "out").exists()
