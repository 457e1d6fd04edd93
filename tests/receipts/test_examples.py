# SPDX-License-Identifier: Apache-2.0
"""Examples of dropped rows: few, short, as text and never as HTML, and only where the rows were written."""

import json
import shutil

import curator_df as cdf
from curator_df.receipts import report as examples
from curator_df.receipts.report import dropped_examples, report_page
from tests.core.runner.fake_client import inline_cluster

RULES = (cdf.Rule("word_count", ">=", 3, "short"), cdf.Rule("word_count", "<=", 50, "long"))
PROFILE = cdf.Profile("ours", "1", "example", RULES)


def write(tmp_path, **columns):
    texts = ["<script>a</script>", "b\n\n  b", *["no"] * 20, "word " * 300, "just right it is"]
    rows = [{"text": text, "url": "http://a" * 9, **columns} for text in texts]
    (tmp_path / "in.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    with inline_cluster(memory="4GB", cpus=2):
        docs = cdf.read_jsonl(tmp_path / "in.jsonl").pipe(cdf.keep_profile, PROFILE)
        return cdf.write_parquet(docs, tmp_path / "out", rejects=tmp_path / "rejects")


def test_the_page_shows_a_few_dropped_rows_of_each_reason(tmp_path, monkeypatch):
    receipt = write(tmp_path)
    found = dropped_examples(receipt.rejects, [("keep_profile", "short"), ("keep_profile", "long"), ("x", "none")])
    assert [each.text for each in found["keep_profile", "short"]] == ["<script>a</script>", "b b", "no"]
    assert [each.value for each in found["keep_profile", "short"]] == [1, 2, 1]
    (long,) = found["keep_profile", "long"]
    assert (len(long.text), long.text[-1], long.value) == (examples.MOST_CHARS, "…", 300)
    assert len(found) == 2
    page = report_page(receipt)
    assert "&lt;script&gt;a&lt;/script&gt;" in page
    assert "<script>" not in page
    assert "just right" not in page
    monkeypatch.setattr(examples, "MOST_BYTES", 10)
    assert dropped_examples(receipt.rejects, [("keep_profile", "short")]) == {}
    monkeypatch.undo()
    monkeypatch.setattr(examples, "MOST_ROW_GROUP_BYTES", 10)
    assert "Examples of dropped rows" not in report_page(receipt)


def test_without_rejects_there_are_none(tmp_path):
    receipt = write(tmp_path)
    shutil.rmtree(tmp_path / "rejects")
    assert "Examples of dropped rows" not in report_page(receipt)
    receipt.rejects = None
    assert "Examples of dropped rows" not in report_page(receipt)


def test_damaged_rejects_are_said_and_the_page_is_still_made(tmp_path):
    receipt = write(tmp_path)
    for path in (tmp_path / "rejects").glob("*.parquet"):
        path.write_bytes(b"PAR1 no PAR1")
    assert "cannot be read: " in report_page(receipt)
