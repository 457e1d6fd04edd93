# SPDX-License-Identifier: Apache-2.0
"""Runs whose output is a dataset of the hub: a server of its API on this machine."""

import json
import re

import pytest

import curator_df as cdf
from curator_df import errors
from curator_df.files import retry
from curator_df.io.output import hub_output
from tests.core.runner.fake_client import inline_cluster
from tests.io.hub_server import hub_server

pytest.importorskip("huggingface_hub", reason="needs the hub extra (huggingface_hub)")
pytestmark = pytest.mark.filterwarnings(
    "ignore:Use 'content=:DeprecationWarning"
)  # between huggingface_hub and its client
URL = "hf://datasets/org/out"


@pytest.fixture
def hub(monkeypatch):
    monkeypatch.setenv("HF_HUB_DISABLE_XET", "1")
    monkeypatch.setattr(retry, "FIRST_WAIT_SECONDS", 0.05)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_DISABLE_XET", True)
    with hub_server() as running:
        yield running


@pytest.fixture(scope="module")
def cluster():
    with inline_cluster(memory="2GB", cpus=2) as running:
        yield running


@pytest.fixture
def docs(cluster, tmp_path, monkeypatch):
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    rows = [{"id": number, "text": f"text {number % 7} " * 9, "lang": "ed"[number % 2]} for number in range(40)]
    (tmp_path / "in.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return cdf.read_jsonl(tmp_path / "in.jsonl").pipe(cdf.drop_exact_duplicates)


def ids_of(hub, url, read=cdf.read_parquet):
    return sorted(read(f"{url}/data", storage_options=hub.options).compute()["id"].tolist())


def test_a_run_into_a_dataset_makes_it_private_with_one_commit_and_a_card(hub, docs, tmp_path):
    receipt = cdf.write_parquet(docs, URL, card=True, rejects=tmp_path / "rejects", storage_options=hub.options)
    repository = hub.repositories["org/out"]
    assert receipt.settings["published"] == f"{URL}@{repository.branches['main']}"
    assert (receipt.rows_written, receipt.rows_dropped) == (7, 33)
    assert repository.private
    assert repository.messages == ["initial commit", "Upload 7 rows in 1 files with curator_df"]
    assert set(repository.files()) == {".gitattributes", "README.md", "data/train-00000-of-00001.parquet"}
    assert "| drop_exact_duplicates | 40 | 33 | 7 | 17.5% |" in repository.files()["README.md"].decode()
    assert ids_of(hub, receipt.settings["published"]) == list(range(7))
    assert len(cdf.read_parquet(tmp_path / "rejects").compute()) == 33
    folder = tmp_path / "here/hub-org-out"
    assert [path.name for path in tmp_path.glob("here/*")] == ["hub-org-out"]
    assert list(folder.glob("*.parquet")) == []  # the hub has them
    assert cdf.read_receipt(folder).settings == receipt.settings


def test_a_repeated_call_runs_nothing_and_another_chain_is_refused(hub, docs, raise_if_dask_computes):
    first = cdf.write_parquet(docs, URL, storage_options=hub.options)
    with raise_if_dask_computes():
        again = cdf.write_parquet(docs, URL, on_existing="resume", storage_options=hub.options)
    assert again == first
    assert len(hub.repositories["org/out"].trees) == 2
    with pytest.raises(errors.ResumeError, match=r"cannot resume in .*hub-org-out"):
        cdf.write_parquet(docs[["id"]], URL, on_existing="resume", storage_options=hub.options)
    said = "has 1 file of the split 'train', such as 'data/train-00000-of-00001.parquet'. Replace them with on_existing"
    with pytest.raises(errors.OutputExistsError, match=said):
        cdf.write_parquet(docs, URL, storage_options=hub.options)
    cdf.write_parquet(docs[["id"]], URL, on_existing="overwrite", storage_options=hub.options)
    assert cdf.read_parquet(f"{URL}/data", storage_options=hub.options).columns.tolist() == ["id"]


def test_a_dataset_that_was_emptied_since_is_written_again(hub, docs):
    cdf.write_parquet(docs, URL, storage_options=hub.options)
    del hub.repositories["org/out"]
    cdf.write_parquet(docs, URL, on_existing="resume", storage_options=hub.options)
    assert ids_of(hub, URL) == list(range(7))


@pytest.mark.parametrize("lost", ["run", "push", "note"])
def test_a_run_that_was_interrupted_goes_on(hub, docs, tmp_path, monkeypatch, lost):
    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        if lost == "run":
            patched.setattr("curator_df.core.runner.run._Target.finish", interrupt)
        elif lost == "push":
            patched.setattr(hub_output, "push_to_hub", interrupt)
        else:
            patched.setattr(hub_output, "_tidied", interrupt)
        with pytest.raises(KeyboardInterrupt):
            cdf.write_parquet(docs, URL, storage_options=hub.options)
    assert list((tmp_path / "here/hub-org-out").glob("*.parquet"))
    receipt = cdf.write_parquet(docs, URL, on_existing="resume", storage_options=hub.options)
    assert receipt.ranges_resumed == (1 if lost == "run" else 0)
    assert not list((tmp_path / "here/hub-org-out").glob("*.parquet"))
    assert ids_of(hub, URL) == list(range(7))
    assert len(hub.repositories["org/out"].trees) == 2


@pytest.mark.parametrize("lost", ["run", "push", "commit"])
def test_a_run_that_replaces_files_goes_on_after_an_interruption(hub, docs, tmp_path, monkeypatch, lost):
    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    old = {"data/train-00000-of-00001.parquet": b"old", "data/train-0.parquet": b"older", "data/test-0.parquet": b"t"}
    repository = hub.add("org/out", old)
    with monkeypatch.context() as patched:
        if lost == "run":
            patched.setattr("curator_df.core.runner.run._Target.finish", interrupt)
        else:
            patched.setattr(hub_output, "push_to_hub" if lost == "push" else "read_receipt", interrupt)
        with pytest.raises(KeyboardInterrupt):
            cdf.write_parquet(docs, URL, on_existing="overwrite", storage_options=hub.options)
    receipt = cdf.write_parquet(docs, URL, on_existing="resume", storage_options=hub.options)
    assert receipt.ranges_resumed == (1 if lost == "run" else 0)
    assert receipt.settings["published"] == f"{URL}@{repository.branches['main']}"
    assert sorted(name for name in repository.files() if "data/" in name) == [
        "data/test-0.parquet",
        "data/train-00000-of-00001.parquet",
    ]
    files = cdf.read_parquet(f"{URL}/data/train-*.parquet", storage_options=hub.options)
    assert sorted(files["id"].compute()) == list(range(7))
    assert [path.name for path in tmp_path.glob("here/*")] == ["hub-org-out"]


def test_an_interrupted_replacement_leaves_files_that_came_since(hub, docs, tmp_path, monkeypatch):
    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    hub.add("org/out", {"data/train-0.parquet": b"old"})
    with monkeypatch.context() as patched:
        patched.setattr(hub_output, "push_to_hub", interrupt)
        with pytest.raises(KeyboardInterrupt):
            cdf.write_parquet(docs, URL, on_existing="overwrite", storage_options=hub.options)
    assert (tmp_path / "here/hub-org-out.replaces.json").exists()
    hub.repositories["org/out"].commit({"data/train-0.parquet": b"of somebody else"})
    with pytest.raises(errors.OutputExistsError, match="another output in the splits train"):
        cdf.write_parquet(docs, URL, on_existing="resume", storage_options=hub.options)
    assert hub.repositories["org/out"].files() == {"data/train-0.parquet": b"of somebody else"}


def test_files_of_another_output_are_refused_before_the_run(hub, docs, raise_if_dask_computes):
    hub.add("org/out", {"data/train-00000-of-00009.parquet": b"old", "data/test-0.parquet": b"t"})
    for how in ("raise", "resume"):
        with pytest.raises(errors.OutputExistsError, match="has 1 file of the split 'train'"), raise_if_dask_computes():
            cdf.write_parquet(docs, URL, on_existing=how, storage_options=hub.options)
    cdf.write_parquet(docs, URL, on_existing="overwrite", storage_options=hub.options)
    files = hub.repositories["org/out"].files()
    assert files["data/test-0.parquet"] == b"t"
    assert "data/train-00000-of-00009.parquet" not in files


def test_json_lines_a_branch_folders_of_values_and_no_card(hub, docs, tmp_path):
    cdf.write_jsonl(
        docs, f"{URL}@new", partition_on="lang", card=False, workdir=tmp_path / "work", storage_options=hub.options
    )
    repository = hub.repositories["org/out"]
    assert list(repository.files("main")) == [".gitattributes"]
    assert sorted(repository.files("new")) == [
        ".gitattributes",
        "data/lang=d/train-00000-of-00001.jsonl",
        "data/lang=e/train-00000-of-00001.jsonl",
    ]
    assert (tmp_path / "work/hub-org-out@new/_curator/receipt.json").exists()
    assert not list((tmp_path / "here").iterdir())


def test_a_plan_says_where_the_files_wait_and_changes_nothing_on_the_hub(hub, docs, tmp_path):
    plan = cdf.explain(docs, cdf.write_parquet, path=URL, storage_options=hub.options)
    said = dict(plan.remarks)["dataset"]
    assert re.fullmatch(r"the files are written to .*hub-org-out \(.* free\), sent to hf://datasets/org/out, .*", said)
    assert hub.repositories == {}
    assert not list((tmp_path / "here").iterdir())


def test_a_plan_refuses_a_dataset_with_files_as_the_start_does(hub, docs, tmp_path):
    cdf.write_parquet(docs, URL, storage_options=hub.options, workdir=tmp_path / "first")
    for on_existing in ("raise", "resume"):
        options = {"storage_options": hub.options, "workdir": tmp_path / "second", "on_existing": on_existing}
        with pytest.raises(errors.OutputExistsError) as refused:
            cdf.explain(docs, cdf.write_parquet, path=URL, **options)
        with pytest.raises(errors.OutputExistsError) as started:
            cdf.write_parquet(docs, URL, **options)
        assert str(refused.value) == str(started.value)
    assert cdf.explain(docs, cdf.write_parquet, path=URL, **{**options, "on_existing": "overwrite"}).stages


def test_a_plan_that_does_not_fit_creates_no_dataset(hub, docs):
    large = cdf.read_jsonl("../in.jsonl", blocksize="2GB")
    with pytest.raises(errors.BudgetError):
        cdf.write_parquet(large, URL, storage_options=hub.options)
    assert hub.repositories == {}


def test_a_run_that_is_refused_creates_no_dataset(hub, docs, tmp_path):
    (tmp_path / "in").mkdir()
    (tmp_path / "in.jsonl").rename(tmp_path / "in/docs.jsonl")
    docs = cdf.read_jsonl(tmp_path / "in").pipe(cdf.drop_exact_duplicates)

    def refused(error, said, **more):
        with pytest.raises(error, match=said):
            cdf.write_parquet(docs, URL, storage_options=hub.options, **more)
        assert hub.repositories == {}

    refused(errors.ParameterError, "on_error='rase'", on_error="rase")
    refused(errors.ParameterError, "on_oom='rase'", on_oom="rase")
    refused(errors.ParameterError, "is inside .*hub-org-out", rejects="hub-org-out/rejects")
    refused(errors.ParameterError, "cannot be written to: this run reads", rejects=tmp_path / "in")
    (tmp_path / "rejects").mkdir()
    (tmp_path / "rejects/mine.txt").write_text("mine")
    refused(errors.OutputExistsError, "already contains files", rejects=tmp_path / "rejects")
    cdf.write_parquet(docs, tmp_path / "here/hub-org-out")
    refused(errors.OutputExistsError, "hub-org-out already contains a complete run")
    again = cdf.read_jsonl(tmp_path / "in")
    with pytest.raises(errors.ResumeError, match=r"cannot resume in .*hub-org-out"):
        cdf.write_parquet(again, URL, on_existing="resume", storage_options=hub.options)
    (tmp_path / "here/hub-org-out/mine.txt").write_text("mine")
    refused(errors.OutputExistsError, "1 other file ", on_existing="overwrite")
    assert (tmp_path / "here/hub-org-out/mine.txt").exists()


@pytest.mark.parametrize(
    ("path", "more", "said"),
    [
        ("hf://datasets/org/out/data", {}, "'hf://datasets/org/out/data' cannot be written to. Name a whole dataset"),
        (
            "hf://datasets/org/a..b",
            {},
            "'hf://datasets/org/a..b' is not a valid name of a dataset: the hub takes letters",
        ),
        ("hf://datasets/org/x.git@new", {}, "'hf://datasets/org/x.git' is not a valid name of a dataset"),
        ("hf://buckets/org/out", {}, "Name a whole dataset, such as 'hf://datasets/organization/name'"),
        (URL, {"workdir": "memory://work"}, "workdir='memory://work' is not a local folder"),
        (URL, {"card": "yes"}, "card='yes' must be True or False"),
        (
            "out",
            {"card": True},
            "card=True needs a dataset of the hub as output, .*; 'out' is a folder. Leave card= out",
        ),
    ],
)
def test_what_is_no_dataset_is_refused(docs, tmp_path, path, more, said):
    with pytest.raises(errors.ParameterError, match=said):
        cdf.write_parquet(docs, path, **more)
    assert not list((tmp_path / "here").iterdir())


def test_a_wrong_token_ends_the_call_before_the_run(hub, docs, raise_if_dask_computes):
    options = {"endpoint": hub.url, "token": "hf_wrong"}
    with pytest.raises(errors.RemoteFileError, match="the hub refused the token"), raise_if_dask_computes():
        cdf.write_parquet(docs, URL, storage_options=options)
