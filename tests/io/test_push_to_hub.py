# SPDX-License-Identifier: Apache-2.0
"""Outputs published on the Hugging Face hub: a server of its API on this machine."""

import hashlib
import io
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

import curator_df as cdf
from curator_df import errors
from curator_df.files import retry
from curator_df.io.output import push_to_hub as publishing
from tests.core.runner.fake_client import inline_cluster
from tests.io.hub_server import TOKEN, hub_server, once, wait_until

huggingface_hub = pytest.importorskip("huggingface_hub", reason="needs the hub extra (huggingface_hub)")
pytestmark = pytest.mark.filterwarnings(
    "ignore:Use 'content=:DeprecationWarning"
)  # between huggingface_hub and its client
PYTHON = os.environ.get("CURATOR_DF_DATASETS_PYTHON", "")
ROWS = [{"id": n, "lang": "de" if n % 3 else "en", "text": f"text {n} " * 40} for n in range(60)]


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


@pytest.fixture(scope="module")
def outputs(cluster, tmp_path_factory):
    """Return a folder with outputs of several kinds."""
    home = tmp_path_factory.mktemp("outputs")
    for part in range(3):
        (home / "in").mkdir(exist_ok=True)
        (home / f"in/{part}.jsonl").write_text(
            "".join(json.dumps(row) + "\n" for row in ROWS[20 * part : 20 * part + 20])
        )
    docs = cdf.read_jsonl(home / "in").pipe(cdf.keep_where, "id >= 6").pipe(cdf.drop_exact_duplicates, subset="lang")
    cdf.write_parquet(docs, home / "two")
    docs = cdf.read_jsonl(home / "in", blocksize="2kB").pipe(cdf.keep_where, "id != 7")
    cdf.write_parquet(docs, home / "parquet", target_file_size=1)
    cdf.write_jsonl(docs, home / "jsonl", target_file_size=1)
    cdf.write_parquet(docs, home / "folders", partition_on="lang")
    cdf.write_parquet(docs.pipe(cdf.keep_where, "id < 0"), home / "empty")
    return home


def ids_of(hub, url):
    return cdf.read_parquet(f"{url}/data", storage_options=hub.options).compute()["id"].tolist()


def fields_of(card):
    return yaml.safe_load(card.decode().split("---\n")[1])


def test_an_output_becomes_a_dataset_with_one_commit(hub, outputs):
    url = cdf.push_to_hub(
        outputs / "parquet", "org/corpus", create=True, private=True, license="odc-by", storage_options=hub.options
    )
    repository = hub.repositories["org/corpus"]
    files, count = repository.files(), len(list((outputs / "parquet").glob("*.parquet")))
    assert url == f"hf://datasets/org/corpus@{repository.branches['main']}"
    assert repository.private
    assert repository.messages == ["initial commit", f"Upload 59 rows in {count} files with curator_df"]
    assert sorted(files)[2:] == [f"data/train-{n:05d}-of-{count:05d}.parquet" for n in range(count)]
    assert ids_of(hub, url) == [row["id"] for row in ROWS if row["id"] != 7]
    assert count > 1
    for name, path in zip(sorted(files)[2:], sorted((outputs / "parquet").glob("*.parquet")), strict=True):
        assert files[name] == path.read_bytes()
    assert fields_of(files["README.md"]) == {
        "configs": [{"config_name": "default", "data_files": [{"split": "train", "path": "data/train-*"}]}],
        "license": "odc-by",
        "tags": ["curator_df"],
        "size_categories": ["n<1K"],
    }


def test_the_card_says_what_the_receipt_says(hub, outputs):
    cdf.push_to_hub(outputs / "two", "org/corpus", create=True, storage_options=hub.options)
    card = hub.repositories["org/corpus"].files()["README.md"].decode()
    receipt = cdf.read_receipt(outputs / "two")
    assert "# corpus\n" in card
    assert re.search(r"\n2 rows in \d files? \(\d+ .?B\), of 60 rows read\.\n", card)
    assert "| keep_where | 60 | 6 | 54 | 90.0% |" in card
    assert "| drop_exact_duplicates | 54 | 52 | 2 | 3.3% |" in card
    assert "| drop_exact_duplicates | exact_duplicate | 52 | 86.67% |" in card
    recipe = re.search(r"```yaml\n(.*?)\n```", card, re.DOTALL)[1]
    assert yaml.safe_load(recipe)["steps"][1] == {"drop_exact_duplicates": {"subset": "lang"}}
    assert f"curator_df {cdf.__version__} on {receipt.started[:10]}" in card
    assert receipt.host not in card
    assert "license" not in fields_of(card.encode())


def test_splits_json_lines_and_folders_of_values(hub, outputs):
    cdf.push_to_hub(
        {"train": outputs / "jsonl", "test": outputs / "empty"}, "org/splits", create=True, storage_options=hub.options
    )
    files = hub.repositories["org/splits"].files()
    written = b"".join(content for name, content in sorted(files.items()) if name.endswith(".jsonl"))
    assert written == b"".join(path.read_bytes() for path in sorted((outputs / "jsonl").glob("*.jsonl")))
    assert "data/test-00000-of-00001.parquet" in files
    (config,) = fields_of(files["README.md"])["configs"]
    assert [entry["split"] for entry in config["data_files"]] == ["train", "test"]
    cdf.push_to_hub(outputs / "folders", "org/folders", create=True, storage_options=hub.options)
    files = hub.repositories["org/folders"].files()
    configs = fields_of(files["README.md"])["configs"]
    assert [config["config_name"] for config in configs] == ["lang=de", "lang=en"]
    assert configs[1]["data_files"] == [{"split": "train", "path": "data/lang=en/train-*"}]
    url = f"hf://datasets/org/folders@{hub.repositories['org/folders'].branches['main']}/data/lang=en"
    rows = cdf.read_parquet(url, storage_options=hub.options).compute()
    assert rows["id"].tolist() == [row["id"] for row in ROWS if row["lang"] == "en"]


def test_a_card_that_a_person_wrote_stays_and_a_section_is_replaced(hub, outputs):
    card = "---\nlicense: mit\npretty_name: Corpus\ntags: [web]\nconfigs:\n- config_name: default\n  data_files:\n"
    card += "  - split: test\n    path: data/test-*\n---\n\n# My corpus\n\nWhy we made it.\n"
    hub.add("org/corpus", {"README.md": card.encode()})
    for folder in ("two", "parquet"):
        cdf.push_to_hub(outputs / folder, "org/corpus", on_existing="overwrite", storage_options=hub.options)
    now = hub.repositories["org/corpus"].files()["README.md"].decode()
    fields = fields_of(now.encode())
    assert (fields["license"], fields["pretty_name"], fields["tags"]) == ("mit", "Corpus", ["web", "curator_df"])
    assert [entry["split"] for entry in fields["configs"][0]["data_files"]] == ["test", "train"]
    assert "size_categories" not in fields  # the rows of the other split are not known
    assert "# My corpus\n\nWhy we made it.\n" in now
    assert now.count("## train\n") == 1
    assert "59 rows in" in now
    cdf.push_to_hub(outputs / "two", "org/corpus", on_existing="overwrite", card=False, storage_options=hub.options)
    assert hub.repositories["org/corpus"].files()["README.md"].decode() == now


def test_other_files_of_the_split_are_refused_or_replaced_and_all_others_stay(hub, outputs):
    hub.add(
        "org/corpus",
        {"data/train-00000-of-00009.parquet": b"old", "data/test-00000-of-00001.parquet": b"t", "notes.txt": b"n"},
    )
    said = "has 1 file of another output in the splits train, such as 'data/train-00000-of-00009.parquet'"
    for how in ("resume", "raise"):
        with pytest.raises(errors.OutputExistsError, match=said):
            cdf.push_to_hub(outputs / "two", "org/corpus", on_existing=how, storage_options=hub.options)
    assert len(hub.repositories["org/corpus"].trees) == 1
    cdf.push_to_hub(outputs / "two", "org/corpus", on_existing="overwrite", storage_options=hub.options)
    files = hub.repositories["org/corpus"].files()
    assert {"data/test-00000-of-00001.parquet", "notes.txt", "data/train-00000-of-00001.parquet"} < set(files)
    assert "data/train-00000-of-00009.parquet" not in files
    with pytest.raises(errors.OutputExistsError, match="such as 'data/train-00000-of-00001"):
        cdf.push_to_hub(outputs / "two", "org/corpus", on_existing="raise", storage_options=hub.options)


def test_a_plan_of_an_upload_refuses_what_the_call_would_and_creates_nothing(hub, outputs):
    options = {"repo": "org/corpus", "storage_options": hub.options}
    plan = cdf.explain(outputs / "two", cdf.push_to_hub, create=True, memory="1GB", **options)
    assert re.fullmatch(r"1 file of .* to hf://datasets/org/corpus", dict(plan.remarks)["sends"])
    assert plan.stages == ()
    assert "steps" not in dict(plan.lines())
    assert hub.repositories == {}
    assert str(cdf.explain(str(outputs / "two"), cdf.push_to_hub, create=True, memory="1GB", **options)) == str(plan)
    with pytest.raises(errors.InputError) as refused:
        cdf.explain(outputs / "two", cdf.push_to_hub, memory="1GB", **options)
    with pytest.raises(errors.InputError) as started:
        cdf.push_to_hub(outputs / "two", **options)
    assert str(refused.value) == str(started.value)
    hub.add("org/corpus", {"data/train-00000-of-00009.parquet": b"old"})
    with pytest.raises(errors.OutputExistsError, match="has 1 file of another output"):
        cdf.explain(outputs / "two", cdf.push_to_hub, memory="1GB", **options)


def test_a_repeated_call_sends_nothing_and_makes_no_commit(hub, outputs):
    first = cdf.push_to_hub(outputs / "parquet", "org/corpus", create=True, storage_options=hub.options)
    sent = hub.count("PUT", "/lfs/")
    assert cdf.push_to_hub(outputs / "parquet", "org/corpus", storage_options=hub.options) == first
    assert hub.count("PUT", "/lfs/") == sent == len(list((outputs / "parquet").glob("*.parquet")))
    assert len(hub.repositories["org/corpus"].trees) == 2


@pytest.mark.parametrize("kind", ["parquet", "jsonl"])
def test_files_of_the_same_size_with_other_content_are_another_output(hub, outputs, kind):
    cdf.push_to_hub(outputs / kind, "org/corpus", create=True, storage_options=hub.options)
    repository = hub.repositories["org/corpus"]
    files = dict(repository.files())
    name = max(each for each in files if each.startswith("data/"))
    repository.commit({**files, name: files[name][::-1]})
    with pytest.raises(errors.OutputExistsError, match=f"has 1 file of another output .* such as '{name}'"):
        cdf.push_to_hub(outputs / kind, "org/corpus", storage_options=hub.options)
    cdf.push_to_hub(outputs / kind, "org/corpus", on_existing="overwrite", card=False, storage_options=hub.options)
    assert repository.files() == files


def rows_in(tree):
    """The rows that a reader of all files of a split finds in a commit."""
    files = sorted(name for name in tree if name.startswith("data/train-"))
    return [json.loads(line)["id"] for name in files for line in tree[name].splitlines()]


@pytest.mark.parametrize("most", [2, 4, 100])
def test_no_commit_lacks_rows_while_an_output_replaces_another(hub, cluster, tmp_path, monkeypatch, most):
    for name, first in (("old", 0), ("new", 100)):
        rows = [{"id": first + n, "text": f"{name} {n} " * 40} for n in range(60)]
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        docs = cdf.read_jsonl(tmp_path / f"{name}.jsonl", blocksize="2kB")
        cdf.write_jsonl(docs, tmp_path / name, target_file_size=1)
    monkeypatch.setattr(publishing, "MOST_FILES", most)
    cdf.push_to_hub(tmp_path / "old", "org/corpus", create=True, storage_options=hub.options)
    repository = hub.repositories["org/corpus"]
    before, count = len(repository.trees), len(list((tmp_path / "old").glob("*.jsonl")))
    assert count > 4
    repository.commit(
        {**repository.files(), **({} if most == 2 else {"data/train-00009-of-00010.jsonl": b'{"id": -1}\n'})}
    )
    if most == 4:  # only some names are the same
        files = dict(repository.files())
        for number in range(3, count):
            files[f"data/train-1{number:04d}-of-00001.jsonl"] = files.pop(
                f"data/train-{number:05d}-of-{count:05d}.jsonl"
            )
        repository.commit(files)
    while True:
        made = len(repository.trees)
        cdf.push_to_hub(tmp_path / "new", "org/corpus", on_existing="overwrite", storage_options=hub.options)
        if len(repository.trees) == made:
            break
        made = len(repository.trees)
    old, new = set(range(60)), set(range(100, 160))
    for tree in [*repository.trees.values()][before:-1]:
        assert old <= set(rows_in(tree)) or new <= set(rows_in(tree))
    assert rows_in(repository.files()) == sorted(new)
    assert cdf.push_to_hub(tmp_path / "new", "org/corpus", storage_options=hub.options).endswith(made_last(repository))
    assert (len(repository.trees) - before > 2) == (most < 100)


def made_last(repository):
    return repository.branches["main"]


def test_an_output_without_files_says_that_its_run_wrote_no_rows(hub, outputs, tmp_path):
    shutil.copytree(outputs / "empty", tmp_path / "none")
    for written in (*(tmp_path / "none").glob("*.parquet"), *(tmp_path / "none/_curator").glob("done*")):
        written.unlink()
    with pytest.raises(
        errors.ParameterError, match=r"none has no files, because its run wrote 0 rows\. Leave this split out"
    ):
        cdf.push_to_hub(tmp_path / "none", "org/corpus", create=True, storage_options=hub.options)


def test_the_signature_of_an_address_is_in_no_message(hub, outputs):
    hub.add("org/corpus", {})
    hub.fault = lambda _, path: "denied" if path.startswith("/lfs/") else None
    with pytest.raises(errors.CuratorError) as refused:
        cdf.push_to_hub(outputs / "two", "org/corpus", storage_options=hub.options)
    assert "/lfs/" in str(refused.value)
    assert "?..." in str(refused.value)
    assert "Signature" not in str(refused.value)


def test_a_branch_is_written_and_created_if_asked(hub, outputs):
    hub.add("org/corpus", {})
    with pytest.raises(errors.InputError, match=r"has no branch 'new'\. Create it with create=True"):
        cdf.push_to_hub(outputs / "two", "org/corpus", revision="new", storage_options=hub.options)
    cdf.push_to_hub(outputs / "two", "org/corpus", revision="new", create=True, storage_options=hub.options)
    assert "README.md" not in hub.repositories["org/corpus"].files()
    assert "README.md" in hub.repositories["org/corpus"].files("new")


@pytest.mark.parametrize("fault", ["503", "reset"])
@pytest.mark.parametrize("part", ["/lfs/", "/objects/batch", "/preupload/", "/commit/", "/tree/"])
def test_a_busy_hub_and_a_lost_connection_are_tried_again(hub, outputs, part, fault, monkeypatch):
    monkeypatch.setattr("huggingface_hub.utils._http.time.sleep", lambda _: None)
    hub.add("org/corpus", {"data/test-00000-of-00001.parquet": b"t"})
    hub.fault = once(part, fault)
    url = cdf.push_to_hub(outputs / "two", "org/corpus", storage_options=hub.options)
    assert hub.fault("", part) is None  # the fault was met
    assert len(ids_of(hub, f"{url}")) if part == "none" else len(hub.repositories["org/corpus"].files()) == 4


def test_a_commit_whose_answer_was_lost_is_not_repeated(hub, outputs):
    hub.add("org/corpus", {"data/train-00000-of-00009.parquet": b"old"})
    hub.fault = once("/commit/", "lost")
    cdf.push_to_hub(outputs / "two", "org/corpus", on_existing="overwrite", storage_options=hub.options)
    assert len(hub.repositories["org/corpus"].trees) == 2


def test_a_large_output_becomes_several_commits_and_the_card_is_in_the_last(hub, outputs, monkeypatch):
    monkeypatch.setattr(publishing, "MOST_FILES", 2)
    cdf.push_to_hub(outputs / "parquet", "org/corpus", create=True, storage_options=hub.options)
    repository = hub.repositories["org/corpus"]
    count = len(list((outputs / "parquet").glob("*.parquet")))
    commits = -(-count // 2)
    assert commits > 1
    assert repository.messages[-1].endswith(f"({commits} of {commits})")
    assert ["README.md" in tree for tree in repository.trees.values()] == [False] * commits + [True]


def test_files_that_go_through_memory_are_few_in_each_commit(hub, outputs, monkeypatch):
    sizes = [path.stat().st_size for path in (outputs / "jsonl").glob("*.jsonl")]
    monkeypatch.setattr(publishing, "PLAIN_BYTES", max(sizes))
    cdf.push_to_hub(outputs / "jsonl", "org/corpus", create=True, storage_options=hub.options)
    assert len(hub.repositories["org/corpus"].trees) == 1 + len(sizes) > 2


KILLED = """
import sys, curator_df as cdf
cdf.push_to_hub(sys.argv[1], "org/corpus", create=True)
"""


def test_a_killed_upload_goes_on_and_sends_no_file_twice(hub, outputs):
    paths = sorted((outputs / "parquet").glob("*.parquet"))
    last = hashlib.sha256(paths[-1].read_bytes()).hexdigest()
    held = threading.Event()

    def hold(method, path):
        if method == "PUT" and path.endswith(last):
            wait_until(lambda: len(hub.stored) == len(paths) - 1)
            held.set()
            if not released.is_set():
                time.sleep(3600)

    released = threading.Event()
    hub.fault = hold
    environment = {**os.environ, "HF_ENDPOINT": hub.url, "HF_TOKEN": TOKEN, "HF_HUB_DISABLE_XET": "1"}
    process = subprocess.Popen(
        [sys.executable, "-c", KILLED, str(outputs / "parquet")], env=environment, stderr=subprocess.DEVNULL
    )
    assert held.wait(60)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert list(hub.repositories["org/corpus"].files()) == [".gitattributes"]
    released.set()
    url = cdf.push_to_hub(outputs / "parquet", "org/corpus", create=True, storage_options=hub.options)
    assert len(ids_of(hub, url)) == 59
    puts = [path for method, path in hub.requests if method == "PUT"]
    assert sorted({path: puts.count(path) for path in puts}.values()) == [1] * (len(paths) - 1) + [2]
    assert puts.count(f"/lfs/{last}") == 2


@pytest.mark.parametrize(
    ("repo", "token", "error", "said"),
    [
        (
            "org/missing",
            TOKEN,
            errors.InputError,
            "hf://datasets/org/missing does not exist, or this token may not see it. Create it with create=True",
        ),
        (
            "org/corpus",
            "hf_wrong",
            errors.RemoteFileError,
            r"'hf://datasets/org/corpus': the hub refused the token \(.*401.*HF_TOKEN",
        ),
        (
            "corpus",
            TOKEN,
            errors.ParameterError,
            "repo='corpus' must be the name of a dataset, such as 'organization/name'",
        ),
        *(
            (
                name,
                TOKEN,
                errors.ParameterError,
                f"'hf://datasets/{name}' is not a valid name of a dataset: the hub takes",
            )
            for name in ("org/a..b", "org/-x", "org/x.git", f"org/{'x' * 97}")
        ),
    ],
)
def test_what_the_hub_refuses_is_an_error_that_says_what_to_do(hub, outputs, repo, token, error, said):
    hub.add("org/corpus", {})
    with pytest.raises(error, match=said) as refused:
        cdf.push_to_hub(outputs / "two", repo, storage_options={"endpoint": hub.url, "token": token})
    assert type(refused.value) is error
    assert hub.stored == {}


def test_what_cannot_be_published_is_refused_before_anything_is_sent(hub, outputs, tmp_path):
    def refused(error, said, source):
        with pytest.raises(error, match=said):
            cdf.push_to_hub(source, "org/corpus", storage_options=hub.options)

    (tmp_path / "raw").mkdir()
    refused(errors.InputError, "has no receipt, which curator_df writes when a run is complete", tmp_path / "raw")
    refused(errors.ParameterError, "memory://out is not a local folder", "memory://out")
    refused(errors.ParameterError, "folder has no splits", {})
    refused(errors.ParameterError, "'a-b' cannot name a split", {"a-b": outputs / "two"})
    cdf.write_parquet(cdf.read_jsonl(outputs / "in"), tmp_path / "changed")
    (path,) = (tmp_path / "changed").glob("*.parquet")
    content = path.read_bytes()
    path.write_bytes(content[::-1])
    os.utime(path, (1, 1))
    refused(errors.OutputChangedError, "has other content: it was changed after its run", tmp_path / "changed")
    path.write_bytes(content + b"more")
    refused(
        errors.OutputChangedError,
        r"part-000000-000\.parquet has [\d,]+ bytes, not [\d,]+: it was changed after its run",
        tmp_path / "changed",
    )
    path.unlink()
    refused(errors.OutputChangedError, "is missing: it was changed after its run", tmp_path / "changed")
    assert hub.requests == []
    hub.add("org/corpus", {"README.md": b"---\na: [\n---\n"})
    refused(errors.ParameterError, "README.md of the repository begins with YAML that cannot be read", outputs / "two")
    assert hub.stored == {}


def test_without_the_package_the_error_says_how_to_install_it(monkeypatch, outputs):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(errors.MissingExtraError, match=r"push_to_hub needs the package huggingface-hub.*\[hub\]"):
        cdf.push_to_hub(outputs / "two", "org/corpus")


def test_the_examples_of_the_page_work(cluster, hub, tmp_path, monkeypatch):
    rows = [*ROWS, {"id": 60, "lang": "de", "text": ROWS[0]["text"]}]
    table = pa.Table.from_pylist([{**row, "url": f"http://a.org/{row['id']}"} for row in rows])
    pq.write_table(table, content := io.BytesIO())
    hub.add("org/corpus", {"data/train-00000-of-00001.parquet": content.getvalue()})
    page = (Path(__file__).parents[2] / "docs/hub.md").read_text()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", hub.url)  # as HF_ENDPOINT does before the import
    template = f"{hub.url}/{{repo_id}}/resolve/{{revision}}/{{filename}}"
    monkeypatch.setattr("huggingface_hub.constants.HUGGINGFACE_CO_URL_TEMPLATE", template)
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    namespace = {"cdf": cdf}
    for block in re.findall(r"^```python\n(.*?)^```$", page, re.DOTALL | re.MULTILINE):
        exec(compile(block, "hub.md", "exec"), namespace)
    assert namespace["receipt"].rows_written == 60
    assert namespace["commit"].startswith("hf://datasets/org/corpus at commit ")
    assert len(namespace["again"]) == 60
    files = hub.repositories["org/corpus-deduped"].files()
    assert {name.rpartition("/")[2][:5] for name in files} == {".gita", "READM", "train", "test-"}
    assert fields_of(files["README.md"])["license"] == "odc-by"


LOADED = """
import sys, datasets
for config in datasets.get_dataset_config_names(sys.argv[1]):
    for split, rows in datasets.load_dataset(sys.argv[1], config).items():
        print(config, split, sum(rows["id"]), len(rows), rows.column_names)
"""


@pytest.mark.peer
@pytest.mark.skipif(not PYTHON, reason="needs CURATOR_DF_DATASETS_PYTHON: a Python that has datasets")
def test_datasets_reads_what_was_published(hub, outputs, tmp_path):
    cdf.push_to_hub(
        {"train": outputs / "parquet", "test": outputs / "two"}, "org/parquet", create=True, storage_options=hub.options
    )
    cdf.push_to_hub(outputs / "jsonl", "org/jsonl", create=True, storage_options=hub.options)
    cdf.push_to_hub(outputs / "folders", "org/folders", create=True, storage_options=hub.options)
    environment = {
        "HF_ENDPOINT": hub.url,
        "HF_TOKEN": TOKEN,
        "HF_HUB_DISABLE_XET": "1",
        "HF_HOME": str(tmp_path),
        "PATH": os.environ["PATH"],
    }

    def loaded(name):
        return subprocess.run(
            [PYTHON, "-c", LOADED, name], env=environment, check=True, capture_output=True, text=True
        ).stdout.splitlines()

    kept = [row["id"] for row in ROWS if row["id"] != 7]
    columns = "['id', 'lang', 'text']"
    assert loaded("org/parquet") == [f"default train {sum(kept)} 59 {columns}", f"default test 13 2 {columns}"]
    assert loaded("org/jsonl") == [f"default train {sum(kept)} 59 {columns}"]
    english = [number for number in kept if number % 3 == 0]
    german = [number for number in kept if number % 3]
    assert loaded("org/folders") == [
        f"lang=de train {sum(german)} {len(german)} ['id', 'text']",
        f"lang=en train {sum(english)} {len(english)} ['id', 'text']",
    ]
