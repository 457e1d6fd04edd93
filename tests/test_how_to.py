# SPDX-License-Identifier: Apache-2.0
"""The tutorial, and the pages that answer questions: their code runs from top to bottom, over inputs that are made here."""

from __future__ import annotations

import contextlib
import doctest
import inspect
import json
import os
import random
import re
import runpy
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from pydoc_data.topics import topics
from typing import Any

import pandas as pd
import pytest
import yaml
from distributed import Client
from tokenizers import Tokenizer, models, pre_tokenizers, trainers

import curator_df as cdf
from tests.core.runner.fake_client import inline_cluster
from tests.io.warc_files import html, members

DOCS = Path(__file__).resolve().parents[1] / "docs"
PAGES = sorted((DOCS / "how_to").glob("*.md"))
TUTORIAL = DOCS / "first_curation.md"
BLOCK = re.compile(r"^(?:<!-- (not run|script): (.*) -->\n)?```python\n(.*?)^```$", re.DOTALL | re.MULTILINE)
GERMAN = "Es war die beste und die schlimmste aller Zeiten, und wir müssen mit all dem leben, was war und ist.\n"
QUESTION = "How many clips did Natalia sell altogether in the months of April and May of that year"
BEGINNINGS = (
    "docs = cdf.read_jsonl(",
    "receipt = cdf.write_parquet(cdf.",
    'with cdf.start_cluster(memory="4GB") as cluster:',
)
"""Beginnings of the examples that need nothing but a folder with a corpus."""
FOLDERS = ("corpus", "web", "books", "dirty", "my-first/corpus")


def made_rows(folder: str) -> list[dict[str, Any]]:
    """Return rows of words of Python's help: some are copies, some nearly so, some too short, German, or quote a benchmark."""
    draw, words = random.Random(folder), [word for word in " ".join(topics.values()).split() if word.isalpha()]
    written = [". ".join(" ".join(draw.choices(words, k=12)) for _ in range(15)) for _ in range(30)]
    texts = [f"{text}.\nMail person{number}@example.com?" for number, text in enumerate(written)]
    texts += texts[:5]
    texts += [f"{text} And more." for text in texts[5:9]]
    texts += [GERMAN * 8 + str(number) for number in range(5)]
    texts += ["too short"] * 3
    texts += [f"{written[0]}\n{QUESTION}"]
    return [
        {
            "id": f"{folder}-{number}",
            "text": text,
            "n": number % 7,
            "site": ("forum", "news")[number % 2],
            "kind": "manuals",
            "lang": ("en", "de")[number % 2],
        }
        for number, text in enumerate(texts)
    ]


def write_rows(folder: str) -> None:
    Path(folder).mkdir(parents=True)
    lines = [json.dumps(row) for row in made_rows(folder)]
    Path(folder, "a.jsonl").write_text("\n".join(lines) + "\n")


@pytest.fixture
def inputs(tmp_path, monkeypatch):
    """Write what the pages read into the working directory."""
    monkeypatch.chdir(tmp_path)
    for folder in FOLDERS:
        write_rows(folder)
    Path("datatrove-output").mkdir()
    of_datatrove = [
        {"text": row["text"], "id": row["id"], "metadata": {"url": "https://a.b", "language_score": 0.1 * row["n"]}}
        for row in made_rows("web")
    ]
    Path("datatrove-output/00000.jsonl").write_text("\n".join(map(json.dumps, of_datatrove)) + "\n")
    with Path("dirty/a.jsonl").open("a") as file:
        file.write('{"text": \n')
    Path("benchmarks").mkdir()
    Path("benchmarks/sums.jsonl").write_text(json.dumps({"question": QUESTION}) + "\n")
    Path("crawl").mkdir()
    pages = [
        html(
            f"<html><body><nav>Home</nav><main><p>{text}</p></main></body></html>".encode(), url=f"http://a.b/{number}"
        )
        for number, text in enumerate(list(topics.values())[:5])
    ]
    Path("crawl/a.warc.gz").write_bytes(members(pages)[0])
    Path("code").mkdir()
    functions = [inspect.getsource(function) for function in (json.dumps, json.dump, json.loads, random.Random.choices)]
    code = {"content": functions, "ext": "py", "license": ["mit", "mit", "apache-2.0", "gpl-3.0"]}
    pd.DataFrame(code).to_parquet("code/a.parquet")
    tokenizer = Tokenizer(models.BPE(unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel()
    tokenizer.train_from_iterator(
        topics.values(), trainers.BpeTrainer(special_tokens=["[UNK]", "</s>"], show_progress=False)
    )
    Path("tokenizer").mkdir()
    tokenizer.save("tokenizer/tokenizer.json")
    Path("tokenizer/tokenizer_config.json").write_text(json.dumps({"eos_token": "</s>"}))


class FakeCluster(contextlib.nullcontext):
    """Cluster that is closed at the end of the test."""

    def close(self) -> None:
        assert self.enter_result.client is not None


@pytest.fixture
def clusters(monkeypatch) -> Iterator[None]:
    """Let clusters of the pages run their tasks in this process; they stay open until the end of the test."""
    with contextlib.ExitStack() as stack:

        def start(memory: str, cpus: int = 2) -> Any:
            return FakeCluster(stack.enter_context(inline_cluster(memory, cpus)))

        monkeypatch.setattr(cdf, "start_cluster", start)
        yield


@pytest.mark.parametrize("page", [*PAGES, TUTORIAL], ids=lambda page: page.stem)
def test_the_code_of_a_page_runs(page, inputs, clusters):
    namespace: dict[str, Any] = {}
    blocks = BLOCK.findall(page.read_text())
    assert blocks or page.stem == "index"
    for how, what, block in blocks:
        assert set(re.findall(r"\bcdf\.(\w+)", block)) <= {*cdf.__all__, "errors"}
        if how == "script":
            Path(what).write_text(block)
            runpy.run_path(what, run_name="__main__")
        elif not how:
            exec(compile(block, page.name, "exec"), namespace)
    if (receipt := namespace.get("receipt")) is not None:
        assert 0 < receipt.rows_written <= receipt.rows_read


def examples_of(name: str) -> list[str]:
    """Return the examples of a function that are skipped where no cluster is running, if they make what they use."""
    found = doctest.DocTestParser().get_examples(inspect.getdoc(getattr(cdf, name)) or "")
    sources = [example.source for example in found if example.options.get(doctest.SKIP)]
    return sources if sources and sources[0].startswith(BEGINNINGS) else []


@pytest.mark.parametrize(("name", "sources"), [(name, found) for name in cdf.__all__ if (found := examples_of(name))])
def test_the_example_of_a_function_runs_with_a_cluster(name, sources, inputs, clusters):
    namespace: dict[str, Any] = {"cdf": cdf}
    if not sources[0].startswith("with "):
        cdf.start_cluster(memory="2GB")
    if "semantic" in name:
        pytest.importorskip("sklearn", reason="needs the models extra (scikit-learn is not installed)")
    for source in sources:
        exec(compile(source, name, "exec"), namespace)


def test_every_page_is_in_the_index_and_asks_a_question():
    listed = re.findall(r"\]\((\w+)\.md\)", (DOCS / "how_to/index.md").read_text())
    assert sorted(listed) == sorted(page.stem for page in PAGES if page.stem != "index")
    titles = [page.read_text().splitlines()[0] for page in PAGES if page.stem != "index"]
    assert [title for title in titles if not title.endswith("?") and " come from " not in title] == []


def commands_of(manifest: str) -> list[tuple[list[str], dict[str, str]]]:
    """Return the command and the variables of each container."""
    found = []
    for resource in yaml.safe_load_all(manifest):
        for container in resource["spec"].get("template", {}).get("spec", {}).get("containers", ()):
            variables = {variable["name"]: variable["value"] for variable in container.get("env", ())}
            found.append((container["args"], variables))
    return found


def test_the_containers_of_the_kubernetes_page_make_a_cluster(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_rows("corpus")
    [manifest] = re.findall(
        r"^```yaml\n(.*?)^```$", (DOCS / "how_to/kubernetes.md").read_text(), re.DOTALL | re.MULTILINE
    )
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    with contextlib.ExitStack() as running:
        for arguments, variables in commands_of(manifest):
            here = [part.replace("curator-scheduler", "127.0.0.1").replace("8786", port) for part in arguments]
            options = ["--host", "127.0.0.1", "--dashboard-address", "127.0.0.1:0"]
            assert here[0] == "dask"
            process = running.enter_context(
                subprocess.Popen([sys.executable, "-m", *here, *options], env=os.environ | variables)
            )
            running.callback(process.terminate)
        client = running.enter_context(Client(f"tcp://127.0.0.1:{port}"))
        client.wait_for_workers(1, timeout=60)
        with cdf.connect(client) as connection:
            receipt = cdf.write_parquet(cdf.read_jsonl("corpus").pipe(cdf.normalize_unicode), "clean")
            assert "1 worker x 2 threads" in repr(connection)
    assert receipt.rows_written == len(made_rows("corpus"))
