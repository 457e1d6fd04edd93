# SPDX-License-Identifier: Apache-2.0
"""Dataset cards: fields for the hub, sections of splits, and what of an existing card stays."""

import pytest
import yaml

from curator_df.errors import ParameterError
from curator_df.receipts.dataset_card import CardSplit, dataset_card
from curator_df.receipts.earlier import EarlierRun
from curator_df.receipts.receipt import Receipt, StepReceipt


def split(name="train", patterns=None, **of_receipt):
    steps = [
        StepReceipt("read", 10, 10),
        StepReceipt("keep_where", 10, 7, dropped={"a|b": 2, "short": 1}),
        StepReceipt("write", 7, 7),
    ]
    figures = {
        "rows_read": 12,
        "rows_written": 7,
        "rows_quarantined": 2,
        "files": 1,
        "output_bytes": 2_000,
        "version": "0.1.0",
    }
    receipt = Receipt("/home/me/out", **{"steps": steps, **figures, "host": "secret-host", **of_receipt})
    return CardSplit(name, receipt, patterns or {"default": f"data/{name}-*"})


def fields(card):
    return yaml.safe_load(card.split("---\n")[1])


def test_a_card_is_this_text():
    card = dataset_card(
        "org/corpus", [split(recipe_text="read:\n  jsonl:\n    paths: in/\n")], license="odc-by", existing=None
    )
    assert card == (
        "---\nconfigs:\n- config_name: default\n  data_files:\n  - split: train\n    path: data/train-*\n"
        'license: odc-by\ntags:\n- curator_df\nsize_categories:\n- "n<1K"\n---\n\n# corpus\n\n'
        "<!-- curator_df: train -->\n## train\n\n7 rows in 1 file (2 kB), of 12 rows read. 2 rows could not be read.\n\n"
        "### Funnel\n\n| step | rows in | rows dropped | rows out | share of the first |\n| --- | --- | --- | --- | --- |\n"
        "| keep_where | 10 | 3 | 7 | 58.3% |\n\n"
        "### Dropped rows\n\n| step | reason | rows | share |\n| --- | --- | --- | --- |\n"
        "| keep_where | a\\|b | 2 | 16.67% |\n| keep_where | short | 1 | 8.33% |\n\n"
        "### Recipe\n\n```yaml\nread:\n  jsonl:\n    paths: in/\n```\n\n"
        "### Made with\n\ncurator_df 0.1.0\n<!-- end of curator_df: train -->\n"
    )


def test_runs_that_led_to_it_are_in_the_funnel_by_the_names_of_their_folders():
    earlier = [EarlierRun("/data/private/clean/", 20, 12, 0, [("drop_exact_duplicates", 20, 12)])]
    card = dataset_card("org/corpus", [split(earlier=earlier)], license=None, existing=None)
    assert "| clean | drop_exact_duplicates | 20 | 8 | 12 | 60.0% |\n| out | keep_where | 10 | 3 | 7 | 35.0% |" in card
    assert "private" not in card


def test_a_run_without_a_recipe_says_why_and_lists_its_steps():
    card = dataset_card("org/corpus", [split(recipe_gap="map: predicate= is a function")], license=None, existing=None)
    assert "cannot hold this run (map: predicate= is a function). Its steps: `read`, `keep_where`, `write`." in card


def test_many_reasons_are_cut():
    steps = [StepReceipt("read", 99, 99), StepReceipt("keep_where", 99, 0, dropped={f"r{n}": 1 for n in range(40)})]
    card = dataset_card("org/corpus", [split(steps=[*steps, StepReceipt("write", 0, 0)])], license=None, existing=None)
    assert "| keep_where | r29 |" in card
    assert "r30" not in card
    assert "\n\nand 10 other reasons\n" in card


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_another_card_keeps_its_fields_text_and_splits(newline):
    existing = newline.join(
        [
            "---",
            "language: en",
            "tags: web",
            "configs:",
            "- config_name: default",
            "  data_files: [{split: train, path: old/*}, {split: dev, path: dev/*}]",
            "- config_name: raw",
            "  data_dir: raw",
            "- config_name: whole",
            "  data_files: train.parquet",
            "---",
            "# Title",
            "Text.",
        ]
    )
    parts = [split("train"), split("test", {"lang=en": "data/lang=en/test-*"})]
    card = dataset_card("org/corpus", parts, license=None, existing=existing)
    assert fields(card) == {
        "language": "en",
        "tags": ["web", "curator_df"],
        "configs": [
            {
                "config_name": "default",
                "data_files": [{"split": "dev", "path": "dev/*"}, {"split": "train", "path": "data/train-*"}],
            },
            {"config_name": "raw", "data_dir": "raw"},
            {"config_name": "whole", "data_files": ["train.parquet"]},
            {"config_name": "lang=en", "data_files": [{"split": "test", "path": "data/lang=en/test-*"}]},
        ],
    }
    assert "# Title" in card
    again = dataset_card("org/corpus", parts, license=None, existing=card)
    assert again == card


def test_a_section_is_replaced_where_it_is():
    first = dataset_card("org/corpus", [split(), split("test")], license=None, existing=None)
    edited = first.replace("# corpus\n", "# Ours\n\nBefore.\n").replace(
        "<!-- curator_df: test -->", "Between.\n\n<!-- curator_df: test -->"
    )
    card = dataset_card("org/corpus", [split(rows_written=9)], license="mit", existing=edited)
    assert [card.count(text) for text in ("9 rows in", "7 rows in", "Before.", "Between.", "## train", "## test")] == [
        1
    ] * 6
    assert card.index("Before.") < card.index("9 rows in") < card.index("Between.") < card.index("7 rows in")
    assert fields(card)["license"] == "mit"


def test_configurations_that_no_longer_exist_go():
    was = split(patterns={"lang=en": "data/lang=en/train-*", "lang=de": "data/lang=de/train-*"})
    card = dataset_card("org/corpus", [was], license=None, existing=None)
    card = dataset_card(
        "org/corpus", [split(patterns={"lang=en": "data/lang=en/train-*"})], license=None, existing=card
    )
    assert [config["config_name"] for config in fields(card)["configs"]] == ["lang=en"]
    card = dataset_card("org/corpus", [split()], license=None, existing=card)
    assert [config["config_name"] for config in fields(card)["configs"]] == ["default"]
    card = dataset_card("org/corpus", [was], license=None, existing=card)
    assert [config["config_name"] for config in fields(card)["configs"]] == ["lang=en", "lang=de"]


@pytest.mark.parametrize("head", ["a: [", "- a\n- b", "configs: 5", "configs: [default]"])
def test_a_card_with_fields_that_cannot_be_read_is_refused(head):
    with pytest.raises(ParameterError, match=r"begins with YAML that cannot be read: .*Correct it, or set card=False"):
        dataset_card("org/corpus", [split()], license=None, existing=f"---\n{head}\n---\ntext")
