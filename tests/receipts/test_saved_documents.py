# SPDX-License-Identifier: Apache-2.0
"""Documents that `Receipt.save` writes: Croissant metadata, the EU's summary of training content, and a dataset card."""

import gzip
import json
import zipfile

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from curator_df import errors
from curator_df.io.listing import READERS, list_files
from curator_df.receipts.receipt import Receipt, StepReceipt


def receipt(output, **figures):
    steps = [
        StepReceipt("read", 12, 12),
        StepReceipt("redact_pii", 12, 12, counters={"email": 3}),
        StepReceipt("keep_urls", 12, 9, dropped={"blocked_domain": 3}),
        StepReceipt("add_token_count", 9, 9, counters={"tokens": 4_200}),
        StepReceipt("write", 9, 9),
    ]
    known = {"rows_read": 12, "rows_written": 9, "files": 1, "output_bytes": 2_000, "version": "0.1.0"}
    return Receipt(str(output), **{"steps": steps, "started": "2026-01-02T03:04:05", **known, **figures})


def saved(made, path, **options):
    made.save(path, **options)
    return json.loads(path.read_text()) if path.suffix in (".json", ".jsonld") else path.read_text()


def fields(metadata):
    (rows,) = metadata["recordSet"]
    return {field["name"]: (field["dataType"], field.get("repeated", False)) for field in rows["field"]}


def test_croissant_describes_the_columns_of_parquet_and_the_folders(tmp_path):
    (tmp_path / "lang=en").mkdir()
    table = pa.table(
        {
            "text": pa.array(["a"], pa.large_string()),
            "n": [1],
            "score": [0.5],
            "good": [True],
            "kind": pa.array(["x"]).dictionary_encode(),
            "day": pa.array([0], pa.date32()),
            "at": pa.array([0], pa.timestamp("us")),
            "tags": [["a", "b"]],
            "nested": [{"a": 1}],
            "raw": [b"x"],
            "view": pa.array(["x"], pa.string_view()),
            "price": pa.array([1], pa.decimal128(9, 2)),
        }
    )
    pq.write_table(table, tmp_path / "lang=en/part-000000-000.parquet")
    (tmp_path / "_quarantine").mkdir()
    pq.write_table(table, tmp_path / "_quarantine/part-000000-000.parquet")
    made = saved(receipt(tmp_path), tmp_path / "croissant.jsonld", kind="croissant", license="odc-by", name="pages")
    assert fields(made) == {
        "text": ("sc:Text", False),
        "n": ("sc:Integer", False),
        "score": ("sc:Float", False),
        "good": ("sc:Boolean", False),
        "kind": ("sc:Text", False),
        "day": ("sc:Date", False),
        "at": ("sc:DateTime", False),
        "tags": ("sc:Text", True),
        "view": ("sc:Text", False),
        "price": ("sc:Float", False),
        "lang": ("sc:Text", False),
    }
    assert made["distribution"] == [
        {
            "@type": "cr:FileSet",
            "@id": "files",
            "name": "files",
            "encodingFormat": "application/x-parquet",
            "includes": "lang=*/part-*.parquet",
        }
    ]
    assert made["recordSet"][0]["field"][-1]["source"]["transform"] == {"regex": "(?:^|/)lang=([^/]*)/"}
    assert (made["name"], made["license"], made["datePublished"]) == ("pages", "odc-by", "2026-01-02")
    assert made["conformsTo"] == "http://mlcommons.org/croissant/1.0"
    assert made["@context"]["includes"] == "cr:includes"
    assert "9 rows in 1 file (2 kB), of 12 read" in made["description"]


def test_croissant_describes_json_lines(tmp_path):
    with gzip.open(tmp_path / "part-000000-000.jsonl.gz", "wt") as file:
        file.write('{"text": "a", "meta": {"n": 1}}\n{"text": "b", "score": 1.5}\n')
    made = saved(receipt(tmp_path), tmp_path / "croissant.jsonld", kind="croissant")
    assert fields(made) == {"text": ("sc:Text", False), "score": ("sc:Float", False)}
    assert made["name"] == tmp_path.name
    assert "license" not in made


def test_json_values_without_one_type_are_left_out(tmp_path):
    rows = [
        {"hash": 2**63, "either": 1, "large": 2**63, "none": None},
        {"hash": None, "either": "a", "large": "a", "none": None},
    ]
    (tmp_path / "part-000000-000.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    made = saved(receipt(tmp_path), tmp_path / "croissant.jsonld", kind="croissant")
    assert fields(made) == {"hash": ("sc:Integer", False)}


def test_an_output_in_a_store_is_read_with_its_options(tmp_path):
    (tmp_path / "part-000000-000.jsonl").write_text('{"text": "a"}\n')
    archive = tmp_path / "store.zip"
    with zipfile.ZipFile(archive, "w") as file:
        file.write(tmp_path / "part-000000-000.jsonl", "clean/part-000000-000.jsonl")
    options = {"fo": str(archive)}
    for kind, name in (("croissant", "croissant.jsonld"), ("dataset_card", "README.md")):
        text = saved(receipt("zip://clean"), tmp_path / name, kind=kind, storage_options=options)
        assert "part-*.jsonl" in str(text)


def test_a_document_in_the_output_folder_is_not_read(tmp_path):
    (tmp_path / "part-000000-000.jsonl").write_text('{"text": "a"}\n')
    receipt(tmp_path).save(tmp_path / "croissant.jsonld", kind="croissant")
    receipt(tmp_path).save(tmp_path / "README.md", kind="dataset_card")
    suffixes = (*READERS["read_jsonl"], *READERS["read_parquet"])
    assert list_files(tmp_path, suffixes=suffixes).paths == (str(tmp_path / "part-000000-000.jsonl"),)


def test_a_missing_folder_is_named(tmp_path):
    (tmp_path / "reports").mkdir()
    with pytest.raises(
        errors.InputError, match=r"the folder '.*/report' of '.*' does not exist.*Did you mean '.*/reports'"
    ):
        receipt(tmp_path).save(tmp_path / "report/a.html")
    with pytest.raises(errors.InputError, match=r"is a URL\. Save the file on this machine, and copy it there"):
        receipt(tmp_path).save("s3://bucket/receipt.json")


def test_an_output_without_files_is_named(tmp_path):
    with pytest.raises(errors.InputError, match="no Parquet or JSON Lines files that a run wrote were found in"):
        receipt(tmp_path).save(tmp_path / "croissant.jsonld", kind="croissant")


READ_CRAWL = "read:\n  warc:\n    paths: [crawl/*.warc.gz]\nsteps: []\n"
READ_HUB = "read:\n  parquet:\n    paths: hf://datasets/org/corpus/data\nsteps: []\n"


def test_the_summary_has_what_the_receipt_knows(tmp_path):
    domains = pd.DataFrame({"domain": ["a.org", None], "rows": [3, 1], "share_of_rows": [0.75, 0.25]})
    domains.attrs["totals"] = {"rows": 8}
    made = receipt(tmp_path, recipe_text=READ_CRAWL, rows_by_folder={"lang=en": 6, "lang=de": 3})
    text = saved(made, tmp_path / "summary.md", kind="eu_training_data_summary", domains=domains)
    for said in (
        "### 2.3 Data crawled and scraped from online sources",
        "- **Size**: less than 1 billion tokens (4,200 tokens in this data set); 9 documents, 2 kB on disk",
        "documents by folder: lang=en 66.7%, lang=de 33.3%",
        "- **Content**: pages of web archives: crawl/*.warc.gz",
        "| a.org | 3 | 37.50% |",
        "- **Filters that may serve them**: keep_urls (dropped 3 documents)",
        "- **Personal data**: redact_pii (email 3)",
        "- **Dropped by reason**: blocked_domain 3",
        "- **Provider, and authorized representative in the Union**: not known",
    ):
        assert said in text
    hub = saved(receipt(tmp_path, recipe_text=READ_HUB), tmp_path / "summary.md", kind="eu_training_data_summary")
    assert "- **Data sets**: hf://datasets/org/corpus/data" in hub
    assert "pages of web archives" not in hub


@pytest.mark.parametrize(("tokens", "said"), [(10**9, "1 billion to 10 trillion"), (10**13, "more than 10 trillion")])
def test_sizes_are_those_of_the_template(tmp_path, tokens, said):
    made = receipt(tmp_path, steps=[StepReceipt("add_token_count", 1, 1, counters={"tokens": tokens})])
    assert f"**Size**: {said} tokens" in saved(made, tmp_path / "summary.md", kind="eu_training_data_summary")


def test_tokens_are_those_that_a_count_of_the_data_set_found(tmp_path):
    counted = StepReceipt("add_token_count", 9, 9, counters={"tokens": 4_200})
    classified = StepReceipt("add_class", 9, 9, counters={"documents": 9, "tokens": 77})

    def size_of(*steps):
        made = receipt(tmp_path, steps=list(steps))
        return saved(made, tmp_path / "summary.md", kind="eu_training_data_summary")

    assert "**Size**: not known in tokens" in size_of(classified)
    assert "(4,200 tokens in this data set)" in size_of(counted, classified)
    assert "(4,200 tokens before later steps: 2 documents dropped)" in size_of(counted, StepReceipt("keep_urls", 9, 7))
    assert "(4,200 tokens before later steps: 5 documents added)" in size_of(counted, StepReceipt("blend", 9, 14))


def test_a_model_that_writes_text_is_named_with_what_it_counted(tmp_path):
    made = receipt(tmp_path, steps=[StepReceipt("add_completion", 9, 9, counters={"requests": 9, "tokens": 800})])
    text = saved(made, tmp_path / "summary.md", kind="eu_training_data_summary")
    assert "- **Generated by models**: add_completion (requests 9, tokens 800)" in text


def test_a_card_names_the_folders(tmp_path):
    pq.write_table(pa.table({"text": ["a"]}), tmp_path / "part-000000-000.parquet")
    text = saved(receipt(tmp_path), tmp_path / "README.md", kind="dataset_card", license="odc-by")
    assert "path: part-*.parquet" in text
    assert "license: odc-by" in text


@pytest.mark.parametrize(
    ("name", "options", "said"),
    [
        ("a.txt", {}, r"must end in \.html .* or \.json"),
        ("a.json", {"kind": "card"}, "kind='card' is not one of"),
        ("a.json", {"kind": "croissant"}, r"must end in \.jsonld with kind='croissant'"),
        ("a.json", {"license": "mit"}, "license= has no effect with kind='figures', only with 'dataset_card' or"),
        (
            "a.md",
            {"kind": "eu_training_data_summary", "domains": pd.DataFrame({"site": ["a"]})},
            r"must be a table with the columns .* but it has 'site'",
        ),
        (
            "a.md",
            {"kind": "eu_training_data_summary", "domains": pd.DataFrame({"domain": ["a"], "rows_before": [1]})},
            r"it counts several tables \('rows_before'\)\. Pass describe_domains\(output\)",
        ),
        (
            "a.html",
            {"storage_options": {}},
            "storage_options= has no effect with kind='report', only with 'dataset_card' or",
        ),
    ],
)
def test_what_does_not_belong_together_is_refused(tmp_path, name, options, said):
    with pytest.raises(errors.ParameterError, match=said):
        receipt(tmp_path).save(tmp_path / name, **options)
