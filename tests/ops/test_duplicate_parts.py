# SPDX-License-Identifier: Apache-2.0
"""Repeated lines and paragraphs, through whole runs in this process."""

import collections
import json
import random

import pytest

import curator_df as cdf
from curator_df import errors
from curator_df.core.runner import run
from curator_df.exchange import key_stages
from tests.core.runner.fake_client import inline_cluster

TEXTS = [
    "menu\nfirst\nfooter",
    "menu\nsecond\n\nfooter\n",
    None,
    "",
    "menu\nfooter",
    "Menu \nfirst\nthird",
    " \n ",
    "fourth",
]


@pytest.fixture(scope="module", autouse=True)
def cluster():
    with inline_cluster(memory="2GB", cpus=2) as running:
        yield running


def docs_of(folder, texts, files=1, **options):
    folder.mkdir()
    rows = [{"id": number, "text": text} for number, text in enumerate(texts)]
    for part in range(files):
        mine = rows[part * len(rows) // files : (part + 1) * len(rows) // files]
        (folder / f"{part:02d}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in mine))
    return cdf.read_jsonl(str(folder), **options)


def texts_of(docs, target, **options):
    table = cdf.checkpoint(docs, target, **options).compute()
    return dict(zip(table.id, table.text.astype(object).where(table.text.notna(), None), strict=True))


def test_lines_stay_where_they_stood_first(tmp_path):
    docs = docs_of(tmp_path / "in", TEXTS)
    found = texts_of(docs.curate.remove_repeated_parts("lines"), tmp_path / "out", rejects=tmp_path / "rejects")
    assert found == {
        0: "menu\nfirst\nfooter",
        1: "second\n\n",
        2: None,
        3: "",
        5: "Menu \nthird",
        6: " \n ",
        7: "fourth",
    }
    receipt = cdf.read_receipt(tmp_path / "out")
    assert receipt.reasons().values.tolist() == [["remove_repeated_parts", "only_duplicate_lines", 1, 1 / 8]]
    assert receipt.steps[1].counters == {"lines_removed": 5, "bytes_removed": 5 + 7 + 5 + 6 + 6}
    assert cdf.read_parquet(str(tmp_path / "rejects")).compute().text.tolist() == ["menu\nfooter"]


def test_the_last_can_stay_and_case_may_not_count(tmp_path):
    docs = docs_of(tmp_path / "in", TEXTS)
    last = docs.curate.remove_repeated_parts("lines", keep="last", normalize="case_and_spaces")
    found = texts_of(last, tmp_path / "out")
    assert found[5] == "Menu \nfirst\nthird"
    assert found[4] == "footer"
    assert 0 not in found


def test_paragraphs_are_compared_whole(tmp_path):
    docs = docs_of(tmp_path / "in", ["a\nb\n\nc", "b\n\nc\n \n\nd", "a\nb"])
    found = texts_of(docs.curate.remove_repeated_parts("paragraphs"), tmp_path / "out")
    assert found == {0: "a\nb\n\nc", 1: "b\n\nd"}


@pytest.mark.parametrize("kind", ["lines", "paragraphs"])
def test_the_same_texts_whatever_the_cut(tmp_path, monkeypatch, kind):
    choices = random.Random(3)
    after = {"lines": "\n", "paragraphs": "\n\n"}[kind]
    texts = [after.join(f"part {choices.randrange(400)}" for _ in range(choices.randrange(9))) for _ in range(500)]
    seen, expected = set(), {}
    for number, text in enumerate(texts):
        parts = text.split(after)
        kept = [part for part in parts if not part or (part not in seen and not seen.add(part))]
        if kept or not text:
            expected[number] = after.join(kept)
    for number, (files, range_bytes) in enumerate([(1, 10**9), (1, 5_000), (7, 1_000)]):
        monkeypatch.setattr(run, "SMALL_RANGE_BYTES", range_bytes)
        docs = docs_of(tmp_path / f"in{number}", texts, files, blocksize=700)
        found = texts_of(docs.curate.remove_repeated_parts(kind), tmp_path / f"out{number}")
        assert found == expected


def without_frequent_lines(texts, keep, most):
    """Remove lines as `remove_repeated_parts` defines it, in plain Python."""
    documents = collections.defaultdict(set)
    occurrences = collections.defaultdict(list)
    for number, text in enumerate(texts):
        for place, line in enumerate(text.split("\n")):
            documents[line].add(number)
            occurrences[line].append((number, place))
    going = set()
    for line, places in occurrences.items():
        if line.strip() and (len(places) > 1 if most is None else len(documents[line]) > most):
            kept = {"first": places[:1], "last": places[-1:], "none": []}[keep]
            going.update(set(places) - set(kept))
    kept_lines = {
        number: [line for place, line in enumerate(text.split("\n")) if (number, place) not in going]
        for number, text in enumerate(texts)
    }
    return {number: "\n".join(lines) for number, lines in kept_lines.items() if lines}


@pytest.mark.parametrize("keep", ["first", "last", "none"])
@pytest.mark.parametrize("most", [None, 3])
def test_lines_go_that_occur_in_too_many_documents(tmp_path, monkeypatch, keep, most):
    choices = random.Random(8)
    # Lines that a document repeats, so that pieces of the sorted keys begin and end within a document.
    texts = ["\n".join(choices.choices([f"line {choices.randrange(60)}" for _ in range(3)], k=9)) for _ in range(60)]
    expected = without_frequent_lines(texts, keep, most)
    for number, (range_bytes, piece_rows) in enumerate([(10**9, 1 << 16), (2_000, 5)]):
        monkeypatch.setattr(run, "SMALL_RANGE_BYTES", range_bytes)
        monkeypatch.setattr(key_stages, "PIECE_ROWS", piece_rows)
        docs = docs_of(tmp_path / f"in{number}", texts, files=number + 1, blocksize=700)
        chain = docs.curate.remove_repeated_parts("lines", keep=keep, max_documents=most)
        assert texts_of(chain, tmp_path / f"out{number}") == expected


def test_a_line_that_one_document_repeats_is_not_in_many_documents(tmp_path):
    docs = docs_of(tmp_path / "in", ["a\na\na\nb", "c\na", "b", "b", "d"])
    chain = docs.curate.remove_repeated_parts("lines", keep="none", max_documents=2)
    assert texts_of(chain, tmp_path / "out") == {0: "a\na\na", 1: "c\na", 4: "d"}


def test_behind_a_drop_of_rows_and_before_one(tmp_path):
    docs = docs_of(tmp_path / "in", ["x\na", "x\na", "x\nb", "b"])
    chain = docs.curate.drop_exact_duplicates().curate.remove_repeated_parts("lines")
    assert texts_of(chain, tmp_path / "a") == {0: "x\na", 2: "b"}
    chain = docs.curate.remove_repeated_parts("lines").curate.drop_exact_duplicates()
    assert texts_of(chain, tmp_path / "b") == {0: "x\na", 2: "b"}


def test_a_step_before_that_depends_on_chance_is_caught(tmp_path):
    def by_chance(block):
        return block.assign(text=block.text + str(random.SystemRandom().random()))

    docs = docs_of(tmp_path / "in", ["a\nb"] * 50)
    chain = docs.map_partitions(by_chance, meta=docs._meta).curate.remove_repeated_parts("lines")
    with pytest.raises(
        (errors.RowCountError, ValueError), match=r"gave different results when the input was read twice|no part"
    ):
        cdf.checkpoint(chain, tmp_path / "out")


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"unit": "words"}, errors.ParameterError),
        ({"unit": "lines", "keep": "longest"}, errors.ParameterError),
        ({"unit": "lines", "keep": cdf.best("id")}, errors.ParameterError),
        ({"unit": "lines", "normalize": "stem"}, errors.ParameterError),
        ({"unit": "lines", "max_documents": 0}, errors.ParameterError),
        ({"unit": "lines", "max_documents": 1.5}, errors.ParameterError),
        ({"unit": "lines", "text": "id"}, errors.SchemaError),
        ({"unit": "lines", "text": "body"}, errors.ColumnError),
    ],
)
def test_what_cannot_work_is_refused_at_the_door(tmp_path, options, error):
    with pytest.raises(error, match="remove_repeated_parts"):
        docs_of(tmp_path / "in", TEXTS).curate.remove_repeated_parts(**options)
