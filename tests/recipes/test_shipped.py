# SPDX-License-Identifier: Apache-2.0
"""Shipped recipes: each runs, has the thresholds of its source, and says what it reproduces, what differs and what is missing."""

import gzip
import importlib.metadata
import json
import os
import random
import tomllib
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import curator_df as cdf
from curator_df.profiles import fineweb_2
from curator_df.recipes.recipe import ABOUT
from curator_df.recipes.shipped import shipped_about, shipped_names, shipped_text
from tests.core.runner.fake_client import inline_cluster
from tests.models.test_local_models import write_fasttext
from tests.models.tokens.tiny_tokenizers import tiny
from tests.recipes.crawl_part import first_records

CHECKOUT = Path(__file__).resolve().parents[2]
GOOD = (
    "The river that runs through the old town is long, and the people who live there have walked along it for years. "
    "In the morning {0} of them go to the market with baskets of bread, apples and flowers to be sold before noon. "
    "A teacher told the children stories of ships that came from the sea and of the bridge which nobody could build. "
    "When winter comes, the water is cold and clear, so that the stones on the ground can be counted from above. "
    "Number {1} of these stories was written down by a visitor, who had never been to a quieter place in all her life. "
    "She stayed until spring, and on the last evening wrote to {2} with more thanks than a letter can hold."
)
GERMAN = (
    "Der Fluss, der durch die alte Stadt fließt, ist lang, und die Menschen, die dort wohnen, gehen seit Jahren an ihm "
    "entlang. Am Morgen gehen {0} von ihnen mit Körben voller Brot, Äpfel und Blumen auf den Markt, um sie vor Mittag zu "
    "verkaufen. Ein Lehrer erzählte den Kindern Geschichten von Schiffen, die aus dem Meer kamen, und von der Brücke, die "
    "niemand bauen konnte. Im Winter ist das Wasser kalt und klar, sodass man die Steine auf dem Grund zählen kann. Die "
    "Geschichte Nummer {1} wurde von einer Besucherin aufgeschrieben, die {2} davon schrieb."
)
SEVERAL = ("a few", "seven", "many", "some", "fifty")


def pages(text, count=5):
    """Return texts of the same words in different orders, so that they are not near-duplicates."""
    found = []
    for number in range(count):
        words = text.format(SEVERAL[number], number, f"mail{number}@example.org").split(" ")
        random.Random(number).shuffle(words)
        found.append(" ".join(words).rstrip(",.") + ".")
    return found


def write_crawl(folder, texts):
    """Write pages as a WARC file, one of them twice, and a page of another kind."""
    folder.mkdir()
    with gzip.open(folder / "a.warc.gz", "wb") as file:
        for number, text in enumerate([*texts, texts[0], "short"]):
            page = f"<html><body><article><p>{text}</p></article></body></html>".encode()
            body = b"HTTP/1.1 200 OK\r\nContent-Type: text/html; charset=utf-8\r\n\r\n" + page
            head = f"WARC/1.0\r\nWARC-Type: response\r\nWARC-Target-URI: http://example.org/{number}\r\n"
            head += "WARC-Date: 2026-01-01T00:00:00Z\r\nContent-Type: application/http; msgtype=response\r\n"
            file.write(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body + b"\r\n\r\n")


def ensemble_of(path):
    """Return settings with one fastText model in the place of the three classifiers of nemotron_cc."""
    return {step: {"classifier": path, "score_of": "good"} for step in "123"}


def write_jsonl(folder, texts):
    folder.mkdir()
    (folder / "a.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))


def write_pool(folder, texts):
    """Write a pool of the recipe dolma_3, whose texts have scores from 0 to 1."""
    folder.mkdir()
    scores = [number / len(texts) for number in range(len(texts))]
    pd.DataFrame({"text": texts, "quality_score": scores}).to_parquet(folder / "a.parquet", index=False)


CODE = """# A program that greets.
NAME = "world"


def greet(name):
    # The name comes last.
    print("Hello", name)
"""
LID_176 = {"keep_language": {"model": None, "languages": ["de"]}}
"""Settings of fineweb_2 with the language model of a package in the place of GlotLID."""
INPUTS = {
    "code": (write_jsonl, [CODE, "x = 1\n", CODE.replace("world", "moon")], 2),
    "dclm_baseline": (write_crawl, pages(GOOD), 5),
    "dedup": (write_jsonl, [*pages(GOOD, 3), pages(GOOD)[0], pages(GOOD)[1] + " And so on."], 3),
    "dolma_3": (write_crawl, pages(GOOD), 5),
    "dolma_3_mix": (write_pool, [GOOD.format("some", number, "her") for number in range(40)], 20),
    "fineweb": (write_crawl, pages(GOOD), 5),
    "fineweb_2": (write_crawl, pages(GERMAN), 5),
    "nemo_english": (write_jsonl, [*pages(GOOD), "short"], 5),
    "nemotron_cc": (write_crawl, pages(GOOD), 5),
    "redpajama_v2": (write_crawl, pages(GOOD), 5),
}
"""For each recipe what writes its input, the texts, and how many rows are kept."""


@pytest.mark.parametrize("name", shipped_names())
def test_a_shipped_recipe_runs(name, tmp_path):
    write, texts, kept = INPUTS[name]
    write(tmp_path / "in", texts)
    settings = {"input": str(tmp_path / "in"), "output": str(tmp_path / "out")}
    if name == "nemotron_cc":
        settings["steps"] = {"add_class": ensemble_of(write_fasttext(tmp_path / "quality.bin"))}
    if name == "fineweb_2":
        settings["steps"] = LID_176
    if name == "dolma_3":
        one = {"classifier": write_fasttext(tmp_path / "quality.bin")}
        settings["steps"] = {"add_class": {"1": one, "2": {**one, "score_of": "good"}}}
    if name == "dolma_3_mix":
        pytest.importorskip("tokenizers", reason="needs the models extra (tokenizers is not installed)")
        tiny(tmp_path / "tokenizer")
        settings["write"] = {"tokenizer": str(tmp_path / "tokenizer")}
    if name == "redpajama_v2":  # test_crawl_recipes.py runs it with a model
        settings["steps"] = {"add_perplexity": None, "keep_where": None}
    if name == "dclm_baseline":
        settings["steps"] = {"add_class": {"classifier": write_fasttext(tmp_path / "quality.bin"), "score_of": "good"}}
    recipe = cdf.load_recipe(name, **settings)
    with inline_cluster():
        assert "it fits" in str(recipe.explain())
        receipt = recipe.run()
    assert receipt.rows_written == kept < receipt.rows_read, receipt
    if name.startswith("fineweb"):
        texts = pd.read_parquet(tmp_path / "out").text
        assert texts.str.contains("<EMAIL>").all()
        assert not texts.str.contains("@").any()


def test_every_recipe_has_a_test_of_its_own():
    assert sorted(INPUTS) == shipped_names()


BEFORE = [("read", 1485, 1485), ("read_warc", 1485, 758), ("remove_html", 758, 758)]
FEW_BEFORE = [("read", 300, 300), ("read_warc", 300, 152), ("remove_html", 152, 152)]
OF_TRAFILATURA = {
    ("1", 1485): [  # 1.11, whose texts equal those of datatrove 0.10.1
        *BEFORE,
        ("keep_language", 758, 338),
        ("keep_profile", 338, 269),
        ("keep_profile", 269, 137),
        ("keep_profile", 137, 101),
        ("remove_c4_lines", 101, 101),
        ("keep_profile", 101, 76),
        ("drop_near_duplicates", 76, 71),
        ("redact_pii", 71, 71),
        ("write", 71, 71),
    ],
    ("2", 1485): [  # 2.3
        *BEFORE,
        ("keep_language", 758, 330),
        ("keep_profile", 330, 271),
        ("keep_profile", 271, 130),
        ("keep_profile", 130, 97),
        ("remove_c4_lines", 97, 97),
        ("keep_profile", 97, 79),
        ("drop_near_duplicates", 79, 73),
        ("redact_pii", 73, 73),
        ("write", 73, 73),
    ],
    ("1", 300): [
        *FEW_BEFORE,
        ("keep_language", 152, 66),
        ("keep_profile", 66, 55),
        ("keep_profile", 55, 29),
        ("keep_profile", 29, 18),
        ("remove_c4_lines", 18, 18),
        ("keep_profile", 18, 14),
        ("drop_near_duplicates", 14, 14),
        ("redact_pii", 14, 14),
        ("write", 14, 14),
    ],
    ("2", 300): [
        *FEW_BEFORE,
        ("keep_language", 152, 66),
        ("keep_profile", 66, 58),
        ("keep_profile", 58, 31),
        ("keep_profile", 31, 20),
        ("remove_c4_lines", 20, 20),
        ("keep_profile", 20, 13),
        ("drop_near_duplicates", 13, 13),
        ("redact_pii", 13, 13),
        ("write", 13, 13),
    ],
}
"""Rows of each step by the release of trafilatura, because releases extract different texts, and by the number of records."""


@pytest.mark.parametrize("records", [300, pytest.param(1485, marks=pytest.mark.proof)])
def test_fineweb_on_a_crawl_keeps_the_rows_of_each_step(shared_data, tmp_path, records):
    crawl = first_records(shared_data, tmp_path, records)
    recipe = cdf.load_recipe("fineweb", input=crawl, output=str(tmp_path / "out"))
    with inline_cluster():
        receipt = recipe.run()
    counted = [(step.name, step.rows_in, step.rows_out) for step in receipt.steps]
    release = importlib.metadata.version("trafilatura").split(".")[0]
    assert counted == OF_TRAFILATURA[release, records]
    assert receipt.rows_quarantined == 0


@pytest.mark.proof  # another 40 s of extraction
def test_fineweb_drops_pages_by_lists_of_domains_if_a_setting_names_them(shared_data, tmp_path):
    (tmp_path / "listed").write_text("casino-bonus.example\nfree-prizes.example\nadult-pages.example\n")
    recipe = cdf.load_recipe(
        "fineweb",
        input=str(shared_data / "crawl_sample.warc.gz"),
        output=str(tmp_path / "out"),
        steps={"keep_urls": {"block_lists": str(tmp_path / "listed")}},
    )
    with inline_cluster():
        receipt = recipe.run()
    counted = {step.name: (step.rows_in, step.rows_out) for step in receipt.steps}
    assert counted["keep_urls"] == (758, 758 - 27)
    assert counted["remove_html"] == (731, 731)


def parameters_of(name):
    """Return the steps of a shipped recipe with their parameters, as plain values."""

    def plain(value):
        data = value.data
        if isinstance(data, dict):
            return {key: plain(one) for key, one in data.items()}
        return [plain(one) for one in data] if isinstance(data, list) else data

    return [(step, plain(options)) for step, options, _ in cdf.load_recipe(name)._steps()]


def test_the_values_are_those_of_the_sources():
    # datatrove 0.10.0, examples/fineweb.py: LanguageFilter's default of 0.65, MinhashConfig(64 bits, 14 buckets of 8, 5-grams).
    fineweb = parameters_of("fineweb")
    assert ("keep_language", {"languages": ["en"], "min_score": 0.65}) in fineweb
    assert ("drop_near_duplicates", {"scheme": "fineweb", "jaccard_threshold": None}) in fineweb
    scheme = cdf.minhash.FINEWEB
    assert (scheme.num_bands, scheme.minhashes_per_band, scheme.ngram_size, scheme.bits) == (14, 8, 5, 64)
    profiles = [options["profile"] for step, options in fineweb if step == "keep_profile"]
    order = ["datatrove_gopher_repetition", "datatrove_gopher_quality", "fineweb_c4", "datatrove_fineweb"]
    assert profiles == order
    # fineweb-2, configs/deu_Latn.yml: language_score: 0.821.
    language = {"model": "GLOTLID", "languages": ["deu_Latn"], "min_score": 0.821}
    assert ("keep_language", language) in parameters_of("fineweb_2")
    assert fineweb_2("deu_Latn").name == "fineweb_2 deu_Latn"
    # dclm, dclm_baseline_refinedweb.yaml: threshold: 0.65; arXiv 2406.11794: the fastText scores of the highest tenth.
    dclm = parameters_of("dclm_baseline")
    assert ("keep_language", {"languages": ["en"], "min_score": 0.65}) in dclm
    assert ("keep_where", {"predicate": "quality_score >= 0.018112", "reason": "low_quality"}) in dclm
    # allenai/datamap-rs, all_dressed_config.yaml: 150 characters, en from 0.65; allenai/dolma3: 26 bands of 11, 5-grams, 0.8.
    dolma = parameters_of("dolma_3")
    assert ("keep_language", {"languages": ["en"], "min_score": 0.65}) in dolma
    ((_, near),) = (step for step in dolma if step[0] == "drop_near_duplicates")
    scheme = cdf.minhash.Scheme(**near["scheme"]["Scheme"])
    assert (scheme.ngram_size, scheme.num_bands, scheme.minhashes_per_band) == (5, 26, 11)
    assert cdf.minhash.candidate_probability(0.8, scheme.num_bands, scheme.minhashes_per_band) == pytest.approx(
        0.9, abs=0.01
    )
    assert near["jaccard_threshold"] == 0.8
    # NVIDIA-NeMo/Nemotron, nemotron-cc: min_langid_score=0.3; 24 characters, 20 bands of 13; 20 buckets of 5 percent.
    nemotron = parameters_of("nemotron_cc")
    assert ("keep_language", {"languages": ["en"], "min_score": 0.3}) in nemotron
    assert ("drop_near_duplicates", {"scheme": "nemo", "jaccard_threshold": None}) in nemotron
    scheme = cdf.minhash.NEMO
    assert (scheme.ngram_size, scheme.num_bands, scheme.minhashes_per_band) == (24, 20, 13)
    ((_, tiers),) = (step for step in nemotron if step[0] == "add_quality_tier")
    assert tiers["thresholds"] == {str(bucket): pytest.approx(bucket * 0.05) for bucket in range(20)}
    # cc_net: mine.py, Config(min_len=300, lang_threshold=0.5); cutoff.csv, rows 30 and 60 of en.
    redpajama = parameters_of("redpajama_v2")
    assert ("keep_language", {"languages": ["en"], "min_score": 0.5}) in redpajama
    ((_, length), (_, rules)) = (step for step in redpajama if step[0] == "keep_profile")
    assert length["profile"]["Profile"]["rules"][0]["Rule"]["threshold"] == 300
    ((_, perplexity),) = (step for step in redpajama if step[0] == "add_perplexity")
    assert perplexity["buckets"] == [340, 520]
    # The card of togethercomputer/RedPajama-Data-V2, gopher_rules_pass; RedPajama-Data: 9 bands of 13 for 0.8.
    thresholds = [rule["Rule"]["threshold"] for rule in rules["profile"]["Profile"]["rules"]]
    assert thresholds == [50, 100_000, 3, 10, 0.1, 0.9, 0.2]
    assert ("drop_near_duplicates", {"scheme": "redpajama_v2", "jaccard_threshold": None}) in redpajama
    # nemo_curator 0.9.0, heuristic_filter_code.yaml has neither XMLHeaderFilter nor AlphaFilter.
    ((_, _), (_, code)) = parameters_of("code")
    assert code["profile"][0] == {"replace": {"of": "nemo_code", "xml_header": None, "alpha_filter": None}}


def test_the_copies_of_dolma_3_follow_its_curve():
    """The recipe has the means of ``C x^2 exp(2 x)`` over classes from 40% on; the integral is the share that is kept."""
    ((_, repeated),) = (step for step in parameters_of("dolma_3_mix") if step[0] == "repeat_rows")
    x = (np.arange(120_000) + 0.5) * 0.6 / 120_000
    shape = x**2 * np.exp(2 * x)
    constant = 4.51 / 8.14 / (shape.mean() * 0.6)
    assert constant == pytest.approx(3.0507, abs=1e-4)
    means = constant * shape.reshape(12, -1).mean(axis=1)
    assert repeated["times"] == {**{str(8 + n): pytest.approx(mean, abs=6e-4) for n, mean in enumerate(means)}, None: 0}
    assert sum(repeated["times"].values()) / 20 == pytest.approx(4.51 / 8.14, abs=1e-3)
    assert max(repeated["times"].values()) <= 7


@pytest.mark.parametrize("name", shipped_names())
def test_a_shipped_recipe_says_what_it_is(name):
    about = cdf.load_recipe(name).about
    assert {"reproduces", "source", "differs"} <= set(about) <= set(ABOUT)
    assert about == shipped_about()[name]
    assert shipped_text(name).startswith("# SPDX-License-Identifier: Apache-2.0\n# ")


def listed():
    """Return the list of shipped recipes as the page has it."""
    lines = []
    for name, about in shipped_about().items():
        lines += [f"### `{name}`", ""]
        for key in ABOUT:
            texts = about.get(key, [])
            said = [texts] if isinstance(texts, str) else texts
            if said:
                lines.append(f"- {key}: {said[0]}" if len(said) == 1 else f"- {key}:")
                lines += [f"  - {text}" for text in said if len(said) > 1]
        lines.append("")
    return "\n".join(lines).replace("<EMAIL>", "`<EMAIL>`").replace("<IP>", "`<IP>`")


def test_the_page_lists_the_shipped_recipes():
    path = CHECKOUT / "docs/recipes.md"
    head, mark, _ = path.read_text().partition("## Shipped recipes\n\n")
    if "CURATOR_DF_WRITE_RECIPES" in os.environ:  # to write the list, which a person then reads
        path.write_text(f"{head}{mark}{listed().rstrip()}\n")
    assert path.read_text().partition(mark)[2] == listed().rstrip() + "\n"


def test_a_wheel_has_the_recipes():
    wheel = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]
    assert wheel["packages"] == ["curator_df"]  # with everything below it that git does not ignore
    assert not {"exclude", "only-include", "include"} & set(wheel)
    ignored = (CHECKOUT / ".gitignore").read_text()
    assert "yaml" not in ignored
    assert "recipes" not in ignored
