# SPDX-License-Identifier: Apache-2.0
"""Near duplicates through whole runs in this process, held against one process that compares in memory, and exact truth."""

import gzip
import json
import random
from itertools import pairwise
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest

import curator_df as cdf
from curator_df import errors
from curator_df.core.runner import run
from curator_df.core.tasks.task import run_guarded
from curator_df.dedup.near import grouping as near_grouping
from curator_df.kernels.minhash.jaccard import jaccard_similarities
from curator_df.kernels.minhash.signatures import band_hashes
from tests.core.runner.fake_client import inline_cluster
from tests.kernels.near_duplicate_truth import BINS, read_texts, read_truth, together
from tests.kernels.test_candidates import FIVE_DOCUMENTS
from tests.ops.plain_near_duplicates import plain_groups, plain_matches

WORDS = cdf.minhash.Scheme("words", 3, num_bands=12, minhashes_per_band=3, normalize="case_and_spaces", seed=3)


@pytest.fixture(scope="module", autouse=True)
def cluster():
    with inline_cluster(memory="2GB", cpus=2) as running:
        yield running


def variants(count: int, seed: int) -> list[str]:
    """Return texts of which many are another one with some words changed, some the same, and some nothing."""
    chance = random.Random(seed)
    words = [f"w{number}" for number in range(4_000)]
    texts = [" ".join(chance.choices(words, k=chance.randint(5, 60))) for _ in range(count // 4)]
    while len(texts) < count - 8:
        changed = chance.choice(texts).split()
        for _ in range(chance.randint(0, 4)):
            changed[chance.randrange(len(changed))] = chance.choice(words)
        texts.append(" ".join(changed))
    texts += ["", " ", "  ", "", "one", "One ", "two words", "two words"]
    chance.shuffle(texts)
    return texts


def write_rows(folder: Path, texts: list, files: int = 3) -> str:
    folder.mkdir(parents=True, exist_ok=True)
    chance = random.Random(1)
    rows = [{"id": number, "text": text, "score": chance.randint(0, 5)} for number, text in enumerate(texts)]
    for part, chosen in enumerate(np.array_split(np.arange(len(rows)), files)):
        (folder / f"{part}.jsonl").write_text("".join(json.dumps(rows[number]) + "\n" for number in chosen))
    return str(folder)


def read_rows(folder: Path, texts: list, suffix: str):
    """Return the same rows out of files of another kind."""
    write_rows(folder / "lines", texts)
    if suffix == ".jsonl":
        return cdf.read_jsonl(folder / "lines")
    (folder / "as").mkdir()
    for path in sorted((folder / "lines").iterdir()):
        if suffix == ".parquet":
            pd.read_json(path, lines=True, dtype={"text": str}).to_parquet(folder / "as" / f"{path.stem}.parquet")
        else:
            (folder / "as" / f"{path.name}.gz").write_bytes(gzip.compress(path.read_bytes()))
    return cdf.read_parquet(folder / "as") if suffix == ".parquet" else cdf.read_jsonl(folder / "as")


def ids_in(folder: Path) -> list[int]:
    return [number for path in sorted(folder.glob("*.parquet")) for number in pq.read_table(path)["id"].to_pylist()]


def first_of_each(names: np.ndarray) -> list[int]:
    return np.unique(names).tolist()


def kept_rows(texts: list, jaccard_threshold: float | None, linkage: str, order: list | None = None) -> list[int]:
    """Return the rows that a drop keeps, by its definition."""
    if linkage == "transitive":
        return first_of_each(plain_groups(texts, WORDS, jaccard_threshold))
    dropped = plain_matches(texts, WORDS, jaccard_threshold, order)
    return [number for number in range(len(texts)) if number not in dropped]


@pytest.mark.parametrize(
    ("jaccard_threshold", "linkage"),
    [(0.6, "direct"), pytest.param(0.6, "transitive", marks=pytest.mark.proof), (None, "transitive")],
    ids=str,
)
def test_the_same_rows_as_in_memory_however_the_input_is_cut(tmp_path, monkeypatch, jaccard_threshold, linkage):
    texts = [*variants(700, seed=5), None, None]
    expected = kept_rows(texts, jaccard_threshold, linkage)
    assert 200 < len(expected) < 600
    cuts = [(1, 10**9, None), (3, 4_000, 5), (5, 2_500, 3)]
    for number, (files, range_bytes, each) in enumerate(cuts):
        monkeypatch.setattr(run, "SMALL_RANGE_BYTES", range_bytes)
        docs = cdf.read_jsonl(write_rows(tmp_path / f"in{number}", texts, files))
        clean = cdf.drop_near_duplicates(
            docs, scheme=WORDS, jaccard_threshold=jaccard_threshold, bands_per_iteration=each, linkage=linkage
        )
        receipt = cdf.write_parquet(clean, tmp_path / f"out{number}")
        assert ids_in(tmp_path / f"out{number}") == expected
        said = receipt.exchanges[0]
        assert (said.keys, said.unique) == (len(texts), len(expected))
        assert said.details["iterations"] == -(-12 // (each or 12))
        assert receipt.rows_dropped == len(texts) - len(expected)
        assert not list((tmp_path / f"out{number}").rglob("*.slices"))


@pytest.mark.parametrize("jaccard_threshold", [0.8, None])
@pytest.mark.parametrize(("normalize", "kept"), [("case_and_spaces", [0, 4, 7, 8]), (None, [0, 1, 2, 3, 4, 7, 8])])
def test_white_space_alone_is_nothing_where_texts_are_normalized(tmp_path, jaccard_threshold, normalize, kept):
    texts = ["", " ", "\n", "  \t", None, "", None, "Hello", "one two three four"]
    docs = cdf.read_jsonl(write_rows(tmp_path / "in", texts))
    scheme = cdf.minhash.Scheme("words", 2, num_bands=5, minhashes_per_band=2, normalize=normalize)
    receipt = cdf.write_parquet(
        cdf.drop_near_duplicates(docs, scheme=scheme, jaccard_threshold=jaccard_threshold), tmp_path / "out"
    )
    assert ids_in(tmp_path / "out") == kept
    assert receipt.exchanges[0].details["without_shingles"] == 7


def test_groups_too_many_for_memory_are_made_on_disk(tmp_path, monkeypatch):
    def no_room(job_bytes, attempt):
        return run_guarded(attempt, lambda manifest: None)

    monkeypatch.setattr(run, "SMALL_RANGE_BYTES", 4_000)
    monkeypatch.setattr(near_grouping, "run_components", no_room)
    texts = variants(500, seed=4)
    docs = cdf.read_jsonl(write_rows(tmp_path / "in", texts))
    settings = {"scheme": WORDS, "jaccard_threshold": 0.6, "keep": "longest", "linkage": "transitive"}
    groups = cdf.find_near_duplicates(docs, workdir=tmp_path / "disk", **settings)
    receipt = cdf.write_parquet(cdf.drop_near_duplicates(docs, groups=groups), tmp_path / "out")
    monkeypatch.undo()
    monkeypatch.setattr(run, "SMALL_RANGE_BYTES", 4_000)
    same = cdf.find_near_duplicates(docs, workdir=tmp_path / "memory", **settings)
    assert groups.compute().equals(same.compute())
    assert receipt.rows_dropped == int((~same["kept"]).sum().compute()) > 100
    assert "grouping_rounds" in cdf.read_receipt(groups).exchanges[0].details


# NeMo Curator 0.9, tests/test_fuzzy_dedup.py: its documents, bands, thresholds and groups.
@pytest.mark.parametrize(
    ("bands", "threshold", "groups"), [(5, 0.5, [[3, 4]]), (10, 0.39, [[0, 1], [3, 4]])], ids=["5 bands", "10 bands"]
)
def test_the_five_documents_of_nemo_curators_tests(tmp_path, bands, threshold, groups):
    docs = cdf.read_jsonl(write_rows(tmp_path / "in", FIVE_DOCUMENTS.tolist(), files=2))
    scheme = cdf.minhash.NEMO.replace(ngram_size=5, num_bands=bands, minhashes_per_band=1)
    settings = {"scheme": scheme, "jaccard_threshold": threshold}
    found = cdf.find_near_duplicates(docs, workdir=tmp_path / "work", **settings).compute()
    ids = docs.compute()["id"]
    assert [ids.loc[part.address].tolist() for _, part in found.groupby("group")] == groups
    cdf.write_parquet(cdf.drop_near_duplicates(docs, **settings), tmp_path / "out")
    assert ids_in(tmp_path / "out") == [number for number in range(5) if number not in {group[1] for group in groups}]


def test_each_member_of_a_group_is_listed_with_its_match(tmp_path, monkeypatch):
    monkeypatch.setattr(run, "SMALL_RANGE_BYTES", 4_000)
    texts = variants(400, seed=6)
    docs = cdf.read_jsonl(write_rows(tmp_path / "in", texts))
    settings = {"scheme": WORDS, "jaccard_threshold": 0.6, "linkage": "transitive", "workdir": tmp_path / "work"}
    groups = cdf.find_near_duplicates(docs, id="id", **settings)
    found, rows = groups.compute(), docs.compute()
    names = plain_groups(texts, WORDS, 0.6)
    sizes = dict(zip(*np.unique(names, return_counts=True), strict=True))
    ids = rows.loc[found.address].id.to_numpy()
    assert ids.tolist() == [number for number in range(len(texts)) if sizes[names[number]] > 1]
    assert rows.loc[found.group].id.tolist() == names[ids].tolist()
    assert found.group_size.tolist() == [sizes[name] for name in names[ids]]
    assert (found.kept == (found.address == found.group)).all()
    matched = rows.loc[found.matched_address].id.to_numpy()
    assert (names[matched] == names[ids]).all()
    assert (matched != ids).all()
    assert found[["id", "matched_id"]].to_numpy().tolist() == np.stack([ids, matched], axis=1).tolist()
    series = pd.Series(texts, dtype="string[pyarrow]")
    similarities = jaccard_similarities(series, series, np.stack([ids, matched], axis=1), WORDS)
    assert found.jaccard.to_numpy() == pytest.approx(similarities)
    assert found.jaccard.min() >= 0.6
    clean = cdf.drop_near_duplicates(docs, groups=groups)
    assert [stage.title for stage in cdf.explain(clean).stages] == ["write"]
    cdf.write_parquet(clean, tmp_path / "out")
    assert ids_in(tmp_path / "out") == first_of_each(names)
    again = cdf.find_near_duplicates(docs, id="id", **settings)
    assert cdf.read_receipt(again).output == cdf.read_receipt(groups).output


@pytest.mark.parametrize("keep", [pytest.param("first", marks=pytest.mark.proof), "last", cdf.best("score")], ids=str)
def test_each_dropped_row_is_listed_with_a_kept_row(tmp_path, monkeypatch, keep):
    monkeypatch.setattr(run, "SMALL_RANGE_BYTES", 4_000)
    texts = variants(400, seed=6)
    docs = cdf.read_jsonl(write_rows(tmp_path / "in", texts))
    rows = docs.compute()
    settings = {"scheme": WORDS, "jaccard_threshold": 0.6, "keep": keep}
    groups = cdf.find_near_duplicates(docs, id="id", workdir=tmp_path / "work", **settings)
    found = groups.compute()
    expected = plain_matches(texts, WORDS, 0.6, preferred(rows.reset_index(drop=True), keep))
    dropped = found[~found.kept]
    assert dropped.id.tolist() == sorted(expected)
    assert dropped.matched_id.tolist() == [expected[number][0] for number in dropped.id]
    assert dropped.jaccard.to_numpy(dtype=float) == pytest.approx([expected[number][1] for number in dropped.id])
    assert (dropped.group == dropped.matched_address).all()
    staying = found[found.kept]
    assert staying.id.tolist() == sorted({match for match, _ in expected.values()})
    assert staying.jaccard.isna().all()
    assert staying.matched_id.isna().all()
    sizes = found.groupby("group").size()
    assert found.group_size.tolist() == sizes[found.group].tolist()
    receipt = cdf.write_parquet(
        cdf.drop_near_duplicates(docs, **settings), tmp_path / "out", rejects=tmp_path / "rejects"
    )
    assert receipt.rows_dropped == len(dropped)
    assert ids_in(tmp_path / "out") == [number for number in range(400) if number not in expected]
    assert sorted(ids_in(tmp_path / "rejects")) == sorted(expected)


def test_groups_of_other_parameters_or_another_table_are_refused(tmp_path):
    docs = cdf.read_jsonl(write_rows(tmp_path / "in", variants(60, seed=6)))
    groups = cdf.find_near_duplicates(docs, scheme=WORDS, workdir=tmp_path / "work")
    with pytest.raises(errors.ParameterError, match="were found with"):
        cdf.drop_near_duplicates(docs, scheme=WORDS, jaccard_threshold=None, groups=groups)
    with pytest.raises(errors.ParameterError, match="another table"):
        cdf.drop_near_duplicates(docs.curate.keep_where("id > 3"), groups=groups)


def preferred(rows: pd.DataFrame, keep) -> list[int]:
    """Return the numbers of rows from the preferred one on."""
    if keep == "first":
        return list(range(len(rows)))
    if keep == "last":
        return list(range(len(rows)))[::-1]
    value = rows.text.str.encode("utf-8").str.len() if keep == "longest" else rows.score
    is_rising = keep != "longest" and keep.which == "min"
    return value.sort_values(ascending=is_rising, kind="stable").index.tolist()


@pytest.mark.parametrize(
    ("keep", "linkage"),
    [
        ("last", "transitive"),
        ("longest", "direct"),
        (cdf.best("score"), "direct"),
        (cdf.best("score", "min"), "transitive"),
    ],
    ids=str,
)
def test_the_survivor_follows_the_policy(tmp_path, monkeypatch, keep, linkage):
    monkeypatch.setattr(run, "SMALL_RANGE_BYTES", 3_000)
    texts = variants(300, seed=7)
    docs = cdf.read_jsonl(write_rows(tmp_path / "in", texts))
    settings = {"scheme": WORDS, "jaccard_threshold": 0.6, "keep": keep, "linkage": linkage}
    cdf.write_parquet(cdf.drop_near_duplicates(docs, **settings), tmp_path / "out")
    rows = docs.compute().reset_index(drop=True)
    order = preferred(rows, keep)
    if linkage == "direct":
        assert ids_in(tmp_path / "out") == kept_rows(texts, 0.6, linkage, order)
        return
    rows["name"] = plain_groups(texts, WORDS, 0.6)
    assert ids_in(tmp_path / "out") == sorted(rows.loc[order].groupby("name").head(1).id)


def test_all_pairs_of_real_texts_as_theory_says(shared_data, tmp_path):
    texts = read_texts(shared_data)
    rows = pd.DataFrame({"id": texts.index, "text": texts.to_numpy()})
    rows.to_json(tmp_path / "in.jsonl", orient="records", lines=True, force_ascii=False)
    docs = cdf.read_jsonl(tmp_path / "in.jsonl")
    for name, scheme in (("word5", cdf.minhash.FINEWEB), ("char24", cdf.minhash.NEMO)):
        groups = cdf.find_near_duplicates(docs, scheme=scheme, linkage="transitive", workdir=tmp_path / name)
        found = groups.compute()
        places = pd.Series(range(len(texts)), index=docs.compute().index)
        names = np.arange(len(texts))
        names[places[found.address]] = places[found.group]
        pairs, jaccards = read_truth(shared_data, name, texts)
        recall, precision = together(names, pairs, jaccards)
        hashes = band_hashes(texts, scheme)
        agree = (hashes[pairs[:, 0]] == hashes[pairs[:, 1]]).any(axis=1)
        for low, high in pairwise(BINS):
            there = (jaccards >= low) & (jaccards < high)
            theory = scheme.candidate_probability(jaccards[there])
            spread = (
                4 * np.sqrt((theory * (1 - theory)).sum()) / there.sum() + 0.03
            )  # pairs of one group are not independent
            assert abs(agree[there].mean() - theory.mean()) < spread, (name, low)
        least = {"word5": 0.995, "char24": scheme.candidate_probability(jaccards[jaccards >= 0.8]).mean()}[name]
        assert recall >= least, (name, recall)
        assert precision >= 0.97, (name, precision)
        similar = found.jaccard.to_numpy(dtype=float)
        assert similar.min() >= 0.8


@pytest.mark.parametrize(
    ("name", "scheme", "keep"), [("word5", cdf.minhash.FINEWEB, "longest"), ("char24", cdf.minhash.NEMO, "first")]
)
def test_each_dropped_row_of_real_texts_is_like_a_kept_one(shared_data, tmp_path, name, scheme, keep):
    texts = read_texts(shared_data)
    rows = pd.DataFrame({"id": texts.index, "text": texts.to_numpy()})
    rows.to_json(tmp_path / "in.jsonl", orient="records", lines=True, force_ascii=False)
    groups = cdf.find_near_duplicates(
        cdf.read_jsonl(tmp_path / "in.jsonl"), id="id", scheme=scheme, keep=keep, workdir=tmp_path
    )
    found = groups.compute()
    pairs, jaccards = read_truth(shared_data, name, texts)
    number = {name: place for place, name in enumerate(texts.index)}
    truth = {frozenset(pair): j for pair, j in zip(pairs.tolist(), jaccards.tolist(), strict=True)}
    dropped = found[~found.kept]
    gone = {number[one] for one in dropped.id}
    assert len(gone) > 800
    for line in dropped.itertuples():
        one, other = number[line.id], number[line.matched_id]
        assert other not in gone
        assert line.jaccard == pytest.approx(truth.get(frozenset((one, other)), 1.0))
        assert line.jaccard >= 0.8
    similar = pairs[jaccards >= 0.8]
    assert np.isin(similar, list(gone)).any(axis=1).mean() >= 0.99


def test_the_report_says_what_was_found(tmp_path):
    texts = variants(400, seed=6)
    docs = cdf.read_jsonl(write_rows(tmp_path / "in", texts))
    settings = {"scheme": WORDS, "jaccard_threshold": 0.6, "linkage": "transitive"}
    groups = cdf.find_near_duplicates(docs, workdir=tmp_path / "work", **settings)
    names = plain_groups(texts, WORDS, 0.6)
    _, sizes = np.unique(names, return_counts=True)
    for given in (groups, cdf.read_receipt(groups).output):
        report = cdf.describe_near_duplicates(given, largest=3)
        assert (report.rows, report.rows_going) == (400, 400 - len(sizes))
        assert report.rows_in_groups == sizes[sizes > 1].sum()
        assert report.sizes["groups"].to_dict() == pd.Series(sizes[sizes > 1]).value_counts().to_dict()
        assert report.largest.group_size.tolist() == sorted(sizes, reverse=True)[:3]
        assert report.similarities.compared.sum() == report.compared > 100
        assert 0.5 < report.precision <= 1
        assert 0.9 < report.recall <= 1
        assert report.recall_interval[0] < report.recall < report.recall_interval[1]
        assert "400, of which" in str(report)
        assert "<table>" in report._repr_html_()
        assert report.examples is None
    exact = cdf.find_exact_duplicates(docs, workdir=tmp_path / "work")
    with pytest.raises(errors.InputError, match="were found by find_exact_duplicates"):
        cdf.describe_near_duplicates(exact)


@pytest.mark.parametrize("suffix", [".jsonl", ".jsonl.gz", ".parquet"])
def test_the_report_shows_texts_of_the_largest_groups(tmp_path, suffix):
    texts = variants(400, seed=6)
    docs = read_rows(tmp_path / "in", texts, suffix).curate.normalize_whitespace()
    groups = cdf.find_near_duplicates(docs, scheme=WORDS, jaccard_threshold=0.6, workdir=tmp_path / "work")
    table = groups.compute()
    report = cdf.describe_near_duplicates(groups, docs=docs, largest=3, examples=2, max_chars=50)
    shown = report.examples
    assert shown.columns.tolist() == ["group", "kept", "jaccard", "file", "offset", "text"]
    assert shown.kept.tolist() == [True, False] * 3
    assert shown.group.tolist() == np.repeat(report.largest.group.to_numpy(), 2).tolist()
    by_address = docs.curate.add_ids(into="address").compute().set_index("address").text
    for group, one in shown[~shown.kept].groupby("group"):
        others = table[(table.group == group) & ~table.kept]
        assert one.jaccard.item() == others.jaccard.min()
        assert one.text.item() in by_address[others.address.astype(int)].str.slice(0, 50).tolist()
    assert shown.text.iloc[0] in str(report)
    with pytest.raises(errors.ParameterError, match="belong to another table"):
        cdf.describe_near_duplicates(groups, docs=docs.curate.keep_where("text != ''"))
    with pytest.raises(errors.ParameterError, match="examples=0 is not a whole number from 1 up"):
        cdf.describe_near_duplicates(groups, docs=docs, examples=0)


def test_one_text_many_times_and_short_ones_cost_in_proportion(tmp_path):
    counts = {}
    for many in (2_000, 4_000):
        texts = ["the same text again and again " * 4] * many + [f"word{number % 500}" for number in range(many)]
        texts += [
            f"a page of the catalogue with the number {number} and much that all pages say " * 3
            for number in range(many)
        ]
        docs = cdf.read_jsonl(write_rows(tmp_path / f"in{many}", texts))
        receipt = cdf.write_parquet(cdf.drop_near_duplicates(docs, scheme=WORDS), tmp_path / f"out{many}")
        details = receipt.exchanges[0].details
        counts[many] = details["compared"]
        assert details["different_texts"] == 1 + 500 + many
    assert 0 < counts[4_000] < 2.5 * counts[2_000]
    assert counts[4_000] <= 2 * 12 * 4_000


def test_without_any_duplicates(tmp_path):
    texts = [f"{number} " * 5 + " ".join(f"{number}x{place}" for place in range(30)) for number in range(200)]
    docs = cdf.read_jsonl(write_rows(tmp_path / "in", texts))
    groups = cdf.find_near_duplicates(docs, scheme=WORDS, workdir=tmp_path / "work")
    assert len(groups) == 0
    assert "jaccard" in groups.columns
    cdf.write_parquet(cdf.drop_near_duplicates(docs, groups=groups), tmp_path / "out")
    assert ids_in(tmp_path / "out") == list(range(200))


def test_two_drops_of_different_kinds_in_one_chain(tmp_path):
    texts = variants(300, seed=8)
    docs = cdf.read_jsonl(write_rows(tmp_path / "in", texts))
    both = docs.curate.drop_exact_duplicates().curate.drop_near_duplicates(scheme=WORDS, jaccard_threshold=0.6)
    receipt = cdf.write_parquet(both, tmp_path / "out")
    alone = docs.curate.drop_near_duplicates(scheme=WORDS, jaccard_threshold=0.6)
    cdf.write_parquet(alone, tmp_path / "alone")
    assert [said.step for said in receipt.exchanges] == ["drop_exact_duplicates", "drop_near_duplicates"]

    assert ids_in(tmp_path / "out") == ids_in(tmp_path / "alone")


@pytest.mark.parametrize("of_the_user", [False, True])
def test_behind_other_steps_and_out_of_parquet(tmp_path, of_the_user):
    texts = [f"{text}\r\n" for text in variants(300, seed=10)]
    cdf.write_parquet(cdf.read_jsonl(write_rows(tmp_path / "json", texts)), tmp_path / "in")
    docs = cdf.read_parquet(str(tmp_path / "in")).curate.normalize_unicode().curate.keep_where("id % 3 != 1")
    if of_the_user:
        docs = docs.assign(text=docs.text.str.upper())
    cdf.write_parquet(cdf.drop_near_duplicates(docs, scheme=WORDS, jaccard_threshold=0.6), tmp_path / "out")
    kept = [number for number in range(300) if number % 3 != 1]
    prepared = [f"{texts[number][:-2]}\n" for number in kept]
    prepared = [text.upper() for text in prepared] if of_the_user else prepared
    assert ids_in(tmp_path / "out") == [kept[place] for place in kept_rows(prepared, 0.6, "direct")]


def test_a_prefix_that_depends_on_chance_is_caught(tmp_path):
    docs = cdf.read_jsonl(write_rows(tmp_path / "in", variants(300, seed=9)))
    changing = docs.curate.keep_where(sometimes)
    with pytest.raises(errors.RowCountError, match="gave different results when the input was read twice"):
        cdf.write_parquet(cdf.drop_near_duplicates(changing, scheme=WORDS), tmp_path / "out")


def sometimes(block: pd.DataFrame) -> pd.Series:
    return pd.Series(np.random.default_rng().random(len(block)) > 0.5, index=block.index)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"jaccard_threshold": 0.0}, "jaccard_threshold=0.0 must be above 0 and at most 1"),
        ({"jaccard_threshold": 1.5}, "jaccard_threshold=1.5"),
        ({"bands_per_iteration": 21}, "bands_per_iteration=21 is not from 1 to num_bands=20"),
        ({"scheme": "fine_web"}, "scheme='fine_web' is neither a Scheme nor .* Did you mean 'fineweb'"),
        ({"scheme": "FINEWEB"}, "Did you mean 'fineweb'"),
        ({"scheme": 5}, "scheme=5 is neither a Scheme nor .* 'default', "),
        ({"keep": "best"}, "keep='best'"),
    ],
)
def test_parameters_that_make_no_sense(tmp_path, arguments, message):
    docs = cdf.read_jsonl(write_rows(tmp_path / "in", ["a"]))
    with pytest.raises(errors.ParameterError, match=message.replace("(", r"\(")):
        cdf.drop_near_duplicates(docs, **arguments)
