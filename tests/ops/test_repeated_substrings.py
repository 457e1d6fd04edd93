# SPDX-License-Identifier: Apache-2.0
"""Repeated substrings against a sorted array of all suffixes, through whole runs in this process."""

import json
import random
import string

import pytest

import curator_df as cdf
from curator_df import errors
from curator_df.core.planning.lowering import lower
from curator_df.core.runner import run
from curator_df.dedup import substring_removal
from curator_df.exchange import key_stages
from curator_df.exchange.dropped_rows import DROP_READER_BYTES
from curator_df.kernels.edits import repeated_spans
from tests.core.runner.fake_client import inline_cluster
from tests.ops.repeated_substring_reference import without_repeated


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


def result_of(docs, target, **options):
    """Return the texts by number, and the spans and characters that the receipt counts."""
    table = cdf.checkpoint(docs, target, **options).compute()
    texts = dict(zip(table.id, table.text.astype(object).where(table.text.notna(), None), strict=True))
    counters = next(
        step.counters for step in cdf.read_receipt(target).steps if step.name == "remove_repeated_substrings"
    )
    return texts, counters.get("spans_removed", 0), counters.get("characters_removed", 0)


def planted(seed, alphabet, longest=25):
    """Make texts of random characters with pieces of the texts before, some of them one after the other."""
    choices = random.Random(seed)
    texts = [None, "", " \n"]
    for _ in range(40):
        pieces = []
        for _ in range(choices.randrange(1, 6)):
            source = choices.choice(texts) or ""
            begin = choices.randrange(len(source) + 1)
            copied = source[begin : begin + choices.randrange(2 * longest)]
            fresh = "".join(choices.choices(alphabet, k=choices.randrange(longest)))
            pieces.append(choices.choice([copied, copied * choices.randrange(1, 4), fresh]))
        texts.append("".join(pieces))
    return texts


PERIODIC = [
    "a" * 70,
    "x" + "ab" * 40 + "y",
    "ab" * 30 + "b",
    "abcde" * 20,
    "z" * 19,
    "q" * 20 + "r" + "q" * 19,
    "é" * 40,
]
CROSSING = [
    "0123456789" * 3 + "ABCDEFGHIJ" * 3,
    "ABCDEFGHIJ" * 3 + "0123456789" * 3,
    "abcdefghijklmnopqrst" + "A",
    "-" * 5,
]


@pytest.mark.parametrize("keep", ["first", "none"])
@pytest.mark.parametrize("most", [None, 1, 3])
@pytest.mark.parametrize("alphabet", ["ab", "abcdefghij klm\n", "aé漢🙂 "])
def test_the_spans_are_those_of_a_suffix_array_whatever_the_cut(tmp_path, monkeypatch, keep, most, alphabet):
    texts = planted(len(alphabet), alphabet) + PERIODIC + CROSSING
    expected = without_repeated(texts, 20, keep, most)
    for number, (files, range_bytes, few) in enumerate([(1, 10**9, 1 << 14), (3, 1_000, 5)]):
        monkeypatch.setattr(run, "SMALL_RANGE_BYTES", range_bytes)
        monkeypatch.setattr(key_stages, "PIECE_ROWS", few)
        for name in ("STRETCHES_AT_A_TIME", "WINDOWS_AT_A_TIME", "SPANS_AT_A_TIME"):
            monkeypatch.setattr(repeated_spans, name, few)
        docs = docs_of(tmp_path / f"in{number}", texts, files, blocksize=700)
        chain = docs.pipe(cdf.remove_repeated_substrings, min_bytes=20, keep=keep, max_documents=most)
        assert result_of(chain, tmp_path / f"out{number}") == expected


@pytest.mark.parametrize("keep", ["first", "none"])
def test_spans_of_100_bytes_in_longer_texts_are_those_of_a_suffix_array(tmp_path, keep):
    texts = planted(5, string.printable + "é漢🙂", longest=250)
    expected = without_repeated(texts, 100, keep)
    assert expected[1] > 10
    chain = docs_of(tmp_path / "in", texts, 2).pipe(cdf.remove_repeated_substrings, keep=keep)
    assert result_of(chain, tmp_path / "out") == expected


def test_two_texts_may_share_what_the_first_one_with_the_same_anchor_lacks(tmp_path):
    shared = "common to all three texts"
    texts = [f"one {shared} is first", f"two {shared} and more", f"six {shared} and more"]
    chain = docs_of(tmp_path / "in", texts).pipe(cdf.remove_repeated_substrings, min_bytes=20)
    found, spans, characters = result_of(chain, tmp_path / "out")
    # The second text lacks the end of the first one, and the third one has that of the second.
    assert found == {0: texts[0], 1: "twoand more", 2: "six"}
    assert (spans, characters) == (2, 27 + 35)


@pytest.mark.parametrize("keep", ["first", "none"])
def test_a_crowd_sends_keys_in_proportion_to_its_rows(tmp_path, keep):
    choices = random.Random(4)
    sizes = []
    for count in (500, 2_000):
        texts = [
            f"{choices.random():.18f} All rights reserved by the owners of this page. {choices.random():.18f}"
            for _ in range(count)
        ]
        chain = docs_of(tmp_path / f"in{count}", texts).pipe(cdf.remove_repeated_substrings, min_bytes=30, keep=keep)
        found, spans, _ = result_of(chain, tmp_path / f"out{count}")
        assert spans == count - (keep == "first")
        lengths = {len(text) for number, text in found.items() if number or keep == "none"}
        assert lengths <= set(range(24, 42))
        receipt = cdf.read_receipt(tmp_path / f"out{count}")
        sizes.append(sum(exchange.keys for exchange in receipt.exchanges))
    assert sizes[1] / sizes[0] == pytest.approx(4, rel=0.15)


def test_a_long_text_of_one_letter_sends_few_keys(tmp_path):
    texts = ["a" * 50_000, "ab" * 20_000, "b" + "a" * 300]
    chain = docs_of(tmp_path / "in", texts).pipe(cdf.remove_repeated_substrings)
    found, spans, characters = result_of(chain, tmp_path / "out")
    assert (found, spans, characters) == ({0: "a", 1: "ab", 2: "b"}, 3, 49_999 + 39_998 + 300)
    assert sum(exchange.keys for exchange in cdf.read_receipt(tmp_path / "out").exchanges[:2]) < 600


def test_a_row_of_which_nothing_is_left_goes_to_the_rejects(tmp_path):
    text = "a sentence that is there twice"
    docs = docs_of(tmp_path / "in", [text, f" {text}\n", None, "", " "])
    chain = docs.pipe(cdf.remove_repeated_substrings, min_bytes=20)
    found, *_ = result_of(chain, tmp_path / "out", rejects=tmp_path / "rejects")
    assert found == {0: text, 2: None, 3: "", 4: " "}
    receipt = cdf.read_receipt(tmp_path / "out")
    reasons = [["remove_repeated_substrings", "only_repeated_substrings", 1, 1 / 5]]
    assert receipt.reasons().values.tolist() == reasons
    assert cdf.read_parquet(str(tmp_path / "rejects")).compute().text.tolist() == [f" {text}\n"]


def test_explain_shows_the_passes(tmp_path):
    chain = docs_of(tmp_path / "in", ["a"]).pipe(cdf.remove_repeated_substrings)
    shown = str(cdf.explain(chain))
    for level in ("anchors", "stretches", "pieces", "windows"):
        assert f"{level} for remove_repeated_substrings" in shown


def test_each_removal_of_a_chain_has_room_for_its_three_readers(tmp_path):
    chain = docs_of(tmp_path / "in", ["a"]).pipe(cdf.remove_repeated_substrings)
    held = {}
    for step in lower(chain.pipe(cdf.remove_repeated_substrings, min_bytes=50)).steps:
        held |= step.price.held_by_task
    assert sum(held.values()) == 2 * 2 * DROP_READER_BYTES  # one of three is in the room of every task


def test_behind_a_drop_of_rows_and_before_one(tmp_path):
    texts = ["the same words in all rows, a", "the same words in all rows, a", "the same words in all rows, b", "b"]
    docs = docs_of(tmp_path / "in", texts)
    chain = docs.curate.drop_exact_duplicates().pipe(cdf.remove_repeated_substrings, min_bytes=20)
    assert result_of(chain, tmp_path / "a")[0] == {0: texts[0], 2: "b", 3: "b"}
    chain = docs.pipe(cdf.remove_repeated_substrings, min_bytes=20).curate.drop_exact_duplicates()
    table = cdf.checkpoint(chain, tmp_path / "b").compute()
    assert table.text.tolist() == [texts[0], "b"]


@pytest.mark.parametrize("level", ["anchors", "stretches", "pieces", "windows"])
@pytest.mark.parametrize("stage", ["keys", "merge"])
def test_a_run_that_ended_in_any_stage_goes_on_there(tmp_path, monkeypatch, level, stage):
    monkeypatch.setattr(run, "SMALL_RANGE_BYTES", 2_000)
    texts = planted(7, "abc ") + PERIODIC + CROSSING
    docs = docs_of(tmp_path / "in", texts, 2, blocksize=900)
    chain = docs.pipe(cdf.remove_repeated_substrings, min_bytes=20)
    seen = []
    feeds = dict(substring_removal._FEEDS)

    class Ending:
        def __init__(self, pending, number):
            seen.append((pending.level, number))
            if stage == "keys" and pending.level == level and number == 1:
                raise KeyboardInterrupt
            self.feed = feeds[pending.level](pending, number).feed

    merge = substring_removal.KeyStages._merge

    def ending_merge(stages, name, exchange, *arguments):
        if stage == "merge" and stages.pending.level == level:
            raise KeyboardInterrupt
        return merge(stages, name, exchange, *arguments)

    with monkeypatch.context() as patched:
        patched.setattr(substring_removal, "_FEEDS", dict.fromkeys(feeds, Ending))
        patched.setattr(substring_removal.KeyStages, "_merge", ending_merge)
        with pytest.raises(KeyboardInterrupt):
            cdf.checkpoint(chain, tmp_path / "out")
        stage, first = "", list(seen)
        seen.clear()
        found = result_of(chain, tmp_path / "out", on_existing="resume")
    assert found == without_repeated(texts, 20)
    assert level in {one for one, _ in first}
    assert not set(seen) & {one for one in first if one != (level, 1)}  # what was done is not done again


def test_a_step_before_that_depends_on_chance_is_caught(tmp_path):
    def by_chance(block):
        return block.assign(text=block.text + str(random.SystemRandom().random()))

    docs = docs_of(tmp_path / "in", ["some words that are repeated"] * 50)
    chain = docs.map_partitions(by_chance, meta=docs._meta).pipe(cdf.remove_repeated_substrings, min_bytes=20)
    with pytest.raises(errors.RowCountError, match="gave different results when the input was read twice"):
        cdf.checkpoint(chain, tmp_path / "out")


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"keep": "last"}, errors.ParameterError),
        ({"min_bytes": 15}, errors.ParameterError),
        ({"min_bytes": "11kB"}, errors.ParameterError),
        ({"max_documents": 0}, errors.ParameterError),
        ({"max_documents": 1.5}, errors.ParameterError),
        ({"text": "id"}, errors.SchemaError),
        ({"text": "body"}, errors.ColumnError),
    ],
)
def test_what_cannot_work_is_refused_at_the_door(tmp_path, options, error):
    with pytest.raises(error, match="remove_repeated_substrings"):
        docs_of(tmp_path / "in", ["a"]).curate.remove_repeated_substrings(**options)
