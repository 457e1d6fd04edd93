# SPDX-License-Identifier: Apache-2.0
"""Chains that a run takes on either backend: run on doubles of cuDF's blocks in one process, on pandas' in another."""

import json

import curator_df as cdf
from curator_df.profiles import DATATROVE_FINEWEB, DATATROVE_GOPHER_REPETITION
from curator_df.profiles.minhash import Scheme

PROSE = "One line ends here.\nTwo lines end here, as they do in prose that is long enough.\n"
TEXTS = (
    "",
    None,
    "to be or not to be.\n" * 6,
    "The cat\nThe cat\n\nThe cat",
    "a" * 30,
    "\xc4\xd6 \xfc\xa0x",
    "lorem ipsum javascript { http://a.b/c #x ... 12",
    "".join(f"{number} {line}" for number in range(4) for line in PROSE.splitlines(keepends=True)),
    "A  Cat",
    "a cat",
    "x",
)
COLUMNS = ["id", "text", "score", "is_old"]
NEAR = {"scheme": cdf.minhash.NEMO.replace(ngram_size=4, num_bands=6, minhashes_per_band=2)}
KEPT_LAST = NEAR | {"jaccard_threshold": 0.7, "keep": "last"}


def write_input(folder):
    """Write rows in two files: every text twice, numbers and truth values with nulls."""
    folder.mkdir()
    rows = [
        {"id": n, "text": text, "score": None if n % 5 == 0 else n / 4, "is_old": None if n % 7 == 0 else n % 2 == 0}
        for n, text in enumerate(TEXTS * 2)
    ]
    for number, part in enumerate((rows[:20], rows[20:])):
        lines = "".join(json.dumps(row) + "\n" for row in part)
        (folder / f"{number}.jsonl").write_text(lines)


def first_score(block):
    """Raise on a row, as a function of a user may."""
    if (block["id"] == 13).any():
        raise ValueError("thirteen")
    return block["id"] >= 0


def raises_when_large(block):
    """Run out of memory with more rows than a few, as RMM says it, and on one row always."""
    if len(block) > 4 or (block["id"] == 9).any():
        raise MemoryError("std::bad_alloc: out_of_memory: RMM failure: maximum pool size exceeded")
    return block


def rewritten(docs, folder):
    """Run the operators that write a table and read it back; pickle what they return."""
    cdf.write_by(docs, folder / "split", partition_on="is_old")[True].compute().to_pickle(folder / "split.pickle")
    cdf.shuffle_rows(docs, folder / "shuffled", seed=3).compute().to_pickle(folder / "shuffled.pickle")
    cdf.checkpoint(docs.pipe(cdf.keep_where, "id > 3"), folder / "kept").compute().to_pickle(folder / "kept.pickle")


def grouped(docs, folder):
    """Find the groups that "drop_first" and "drop_near" drop, pickle them, and drop what they list."""
    exact = cdf.find_exact_duplicates(docs, id="id", workdir=folder / "work")
    near = cdf.find_near_duplicates(docs, id="id", workdir=folder / "work", **KEPT_LAST)
    for name, groups, drop in (
        ("drop_first", exact, cdf.drop_exact_duplicates),
        ("drop_near", near, cdf.drop_near_duplicates),
    ):
        groups.compute().to_pickle(folder / f"{name}.pickle")
        cdf.write_parquet(docs.pipe(drop, groups=groups), folder / f"{name}_found")


CHAINS = {
    "as_it_is": lambda df: df,
    "keep_where": lambda df: df.pipe(cdf.keep_where, "id > 3", reason="early"),
    "dasks_steps": lambda df: df[df["id"] > 3].assign(double=df["id"] * 2),
    "keep_profile": lambda df: df.pipe(cdf.keep_profile, DATATROVE_FINEWEB, words="whitespace", add_metrics=True),
    "keep_repetition": lambda df: df.pipe(cdf.keep_profile, DATATROVE_GOPHER_REPETITION, words="whitespace"),
    "add_profile": lambda df: df.pipe(cdf.add_profile, DATATROVE_FINEWEB, words="whitespace"),
    "add_metrics": lambda df: df.pipe(cdf.add_metrics, ["word_count", "duplicate_line_ratio", "digit_ratio"]),
    "sample_rows": lambda df: df.pipe(cdf.sample_rows, 0.5, by="content"),
    "add_ids": lambda df: df.pipe(cdf.add_ids, into="address_of").pipe(cdf.add_ids, into="number", dense=True, start=5),
    "drop_first": lambda df: df.pipe(cdf.drop_exact_duplicates),
    "drop_alike": lambda df: df.pipe(cdf.drop_exact_duplicates, normalize="case_and_spaces", keep="last"),
    "drop_near": lambda df: df.pipe(cdf.drop_near_duplicates, **KEPT_LAST),
    # Pairs are compared by the CPU's kernel, which for words cannot run as Python.
    "drop_near_words": lambda df: df.pipe(
        cdf.drop_near_duplicates,
        scheme=Scheme("words", 2, 6, 2, use_64_bit_hash=True, normalize="case_and_spaces"),
        jaccard_threshold=None,
    ),
    "drop_longest": lambda df: df.pipe(cdf.drop_exact_duplicates, normalize="case_and_spaces", keep="longest"),
    "drop_best": lambda df: df.pipe(cdf.drop_exact_duplicates, keep=cdf.best("score")),
    "drop_near_best": lambda df: df.pipe(cdf.drop_near_duplicates, keep=cdf.best("id"), **NEAR),
    "to_and_fro": lambda df: cdf.to_backend(df.pipe(cdf.keep_where, "id > 3"), "pandas").pipe(cdf.normalize_whitespace),
}
"""By name: what happens between a reader and a writer."""
FAILING = {
    "quarantine": lambda df: df.pipe(cdf.keep_where, first_score),
    "halved": lambda df: df.map_partitions(raises_when_large, meta=df._meta),
}
"""The same where rows are set aside."""
