# SPDX-License-Identifier: Apache-2.0
"""Segments into documents: the joiner on blocks cut anywhere, and whole runs in this process."""

import itertools
import json
import random

import pandas as pd
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import curator_df as cdf
from curator_df import errors
from curator_df.core.runner import run
from curator_df.core.tasks.task import Job
from curator_df.memory.sizes import read_size
from curator_df.ops.rows.document_joiner import DocumentJoiner, Joining, SegmentReader
from tests.contracts.operator_cases import fingerprints_of, table
from tests.core.runner.fake_client import inline_cluster
from tests.examples import examples

JOINING = Joining("text", "id", "segment_id", "\n\n", None, False, 1_000_000)


@pytest.fixture(scope="module")
def cluster():
    with inline_cluster(memory="1.5GB", cpus=2) as running:
        yield running


def write_rows(folder, rows, files=1):
    folder.mkdir()
    for part in range(files):
        mine = rows[part * len(rows) // files : (part + 1) * len(rows) // files]
        (folder / f"{part:02d}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in mine))
    return cdf.read_jsonl(str(folder), dtype={"id": "string", "text": "string", "segment_id": "int64"})


def segments_of(texts, separator="\n\n"):
    return [
        {"id": f"doc {number}", "text": segment, "segment_id": place, "title": f"title {number}"}
        for number, text in enumerate(texts)
        for place, segment in enumerate([None] if text is None else text.split(separator))
    ]


def plain_join(rows, separator="\n\n", max_chars=None):
    """Return (id, text) of each joined row, with Python's own strings."""
    joined = []
    for name, group in itertools.groupby(rows, lambda row: row["id"]):
        joined.append([name, None])
        for row in group:
            text, before = row["text"], joined[-1][1]
            if text is None:
                continue
            longer = text if before is None else before + separator + text
            if before is not None and max_chars is not None and len(longer) > max_chars:
                joined.append([name, text])
            else:
                joined[-1][1] = longer
    return [tuple(row) for row in joined]


def as_block(rows):
    columns = {
        "id": pd.array([row["id"] for row in rows], "string[pyarrow]"),
        "text": pd.array([row["text"] for row in rows], "string[pyarrow]"),
        "segment_id": pd.array([row["segment_id"] for row in rows], "Int64"),
        "title": pd.array([row["title"] for row in rows], "string[pyarrow]"),
    }
    return pd.DataFrame(columns, index=pd.Index(range(len(rows)), name="address"))


def pairs(frame, *names):
    values = frame[list(names)].astype(object)
    return list(values.where(values.notna(), None).itertuples(index=False, name=None))


def joined_in_blocks(rows, cuts, joining):
    reader, joiner, made = SegmentReader(joining), DocumentJoiner(joining), []
    block = as_block(rows)
    for start, stop in itertools.pairwise([0, *cuts, len(rows)]):
        part = block.iloc[start:stop]
        if len(part):
            made += joiner.add(part, reader.take(part).begins)
    return pd.concat([*made, *joiner.end()])


@settings(max_examples=examples(100))
@given(
    st.lists(st.none() | st.text("ab\n é🙂", max_size=30), min_size=1, max_size=6),
    st.text("ab\n é🙂", min_size=1, max_size=3),
    st.lists(st.integers(0, 40), max_size=5),
    st.none() | st.integers(1, 20),
)
@example(["a\n\nb", None, ""], "\n\n", [1, 1, 2], None)
def test_joined_texts_are_those_that_were_split_wherever_blocks_are_cut(texts, separator, cuts, most):
    rows = segments_of(texts, separator)
    cuts = sorted(min(cut, len(rows)) for cut in cuts)
    joining = Joining("text", "id", "segment_id", separator, most, True, 1_000_000)
    joined = joined_in_blocks(rows, cuts, joining)
    assert pairs(joined, "id", "text") == plain_join(rows, separator, most)
    assert joined["title"].tolist() == [name.replace("doc", "title") for name in joined["id"]]
    assert joined["segment_id"].tolist() == joined.groupby("id").cumcount().tolist()
    if most is None:
        assert pairs(joined, "text") == [(text,) for text in texts]


def test_null_segments_are_passed_over_and_rows_without_an_id_are_alone():
    rows = segments_of(["a\n\nb\n\nc", "d\n\ne", "f\n\ng"])
    rows[1]["text"] = rows[3]["text"] = rows[4]["text"] = None
    rows[5]["id"] = rows[6]["id"] = None
    for cuts in ([], [1], [4], [6], [1, 2, 3, 4, 5, 6]):
        joined = joined_in_blocks(rows, cuts, JOINING)
        assert pairs(joined, "id", "text") == [("doc 0", "a\n\nc"), ("doc 1", None), (None, "f"), (None, "g")]
    assert joined.columns.tolist() == ["id", "text", "title"]


def random_texts(seed, documents):
    """Return texts of which some have so many segments that they lie in several ranges."""
    choices = random.Random(seed)
    lengths = [choices.choice([0, 1, 1, 3, 30, 30, 900]) for _ in range(documents)]
    return [
        None if length == 0 else "\n\n".join(f"segment {choices.randrange(100)} é" for _ in range(length))
        for length in lengths
    ]


@pytest.mark.parametrize("arguments", [{}, {"max_chars": 200}], ids=["whole", "pieces"])
def test_documents_come_out_whole_whatever_the_files_and_ranges(tmp_path, monkeypatch, cluster, arguments):
    texts = random_texts(1, 40)
    rows = segments_of(texts)
    expected = plain_join(rows, **arguments)
    cuts = [(1, 10**9), (1, 5_000), (7, 1_000)]
    for number, (files, range_bytes) in enumerate(cuts):
        monkeypatch.setattr(run, "SMALL_RANGE_BYTES", range_bytes)
        docs = write_rows(tmp_path / f"in-{number}", rows, files).pipe(cdf.join_documents, **arguments)
        receipt = cdf.write_parquet(docs, tmp_path / f"out-{number}", rejects=tmp_path / f"rejects-{number}")
        written = cdf.read_parquet(str(tmp_path / f"out-{number}")).compute()
        assert pairs(written, "id", "text") == expected
        assert written["title"].tolist() == [name.replace("doc", "title") for name in written["id"]]
        assert (receipt.rows_read, receipt.rows_written) == (len(rows), len(expected))
        assert receipt.rows_dropped == len(rows) - len(expected)
        assert not list((tmp_path / f"rejects-{number}").glob("*.parquet"))
        assert receipt.ranges >= files // 2 if range_bytes < 10**9 else receipt.ranges == 1
        assert receipt.exchanges[0].unique == len(texts)


def test_segments_that_are_filtered_between_split_and_join_are_missing_in_the_text(tmp_path, monkeypatch, cluster):
    monkeypatch.setattr(run, "SMALL_RANGE_BYTES", 2_000)
    texts = random_texts(2, 30)
    (tmp_path / "in").mkdir()
    lines = [json.dumps({"id": number, "text": text}) + "\n" for number, text in enumerate(texts)]
    (tmp_path / "in" / "a.jsonl").write_text("".join(lines))
    docs = cdf.read_jsonl(str(tmp_path / "in"), blocksize="1kB").pipe(cdf.split_documents)
    kept = docs.pipe(cdf.keep_where, "not text.str.contains('7').fillna(False)").pipe(cdf.join_documents)
    written = cdf.checkpoint(kept.pipe(cdf.add_ids, into="number"), tmp_path / "out").compute()
    expected = [None if t is None else [s for s in t.split("\n\n") if "7" not in s] for t in texts]
    left = [(n, None if parts is None else "\n\n".join(parts)) for n, parts in enumerate(expected) if parts != []]
    assert pairs(written, "id", "text") == left
    assert written["number"].is_unique


def stop_before_the_last_pass(docs, target, monkeypatch):
    dispatch = run.Dispatcher.run

    def stop(dispatcher, pieces):
        job = dispatcher.job
        if isinstance(job, Job) and job.fork.branches[0].sink.folder.url == str(target):
            raise KeyboardInterrupt
        dispatch(dispatcher, pieces)

    with monkeypatch.context() as patched:
        patched.setattr(run.Dispatcher, "run", stop)
        with pytest.raises(KeyboardInterrupt):
            cdf.write_parquet(docs, target, on_existing="resume")


def test_a_run_that_resumes_joins_what_the_first_one_found(tmp_path, monkeypatch, cluster):
    monkeypatch.setattr(run, "SMALL_RANGE_BYTES", 1_000)
    rows = segments_of(random_texts(3, 20))
    docs = write_rows(tmp_path / "in", rows).pipe(cdf.join_documents)
    stop_before_the_last_pass(docs, tmp_path / "out", monkeypatch)
    (heads,) = (tmp_path / "out/_curator/stages").glob("*/heads")
    written = {path.name: path.stat().st_mtime_ns for path in heads.iterdir()}
    stop_before_the_last_pass(docs, tmp_path / "out", monkeypatch)
    assert {path.name: path.stat().st_mtime_ns for path in heads.iterdir()} == written
    cdf.write_parquet(docs, tmp_path / "out", on_existing="resume")
    assert pairs(cdf.read_parquet(str(tmp_path / "out")).compute(), "id", "text") == plain_join(rows)
    assert not heads.exists()


def test_a_damaged_file_of_segments_is_an_error_that_names_it(tmp_path, monkeypatch, cluster):
    monkeypatch.setattr(run, "SMALL_RANGE_BYTES", 1_000)
    docs = write_rows(tmp_path / "in", segments_of(["a\n\n" * 500])).pipe(cdf.join_documents)
    stop_before_the_last_pass(docs, tmp_path / "out", monkeypatch)
    for path in (tmp_path / "out/_curator/stages").glob("*/heads/*"):
        path.write_bytes(path.read_bytes()[:-5])
    with pytest.raises(
        errors.CorruptFileError,
        match=r"heads/part-\d+\.arrow, a temporary file of join_documents, is damaged or missing\. Delete",
    ):
        cdf.write_parquet(docs, tmp_path / "out", on_existing="resume")


def refused(docs, target, said, **arguments):
    with pytest.raises(errors.OperatorError, match=said):
        cdf.write_parquet(docs.pipe(cdf.join_documents, **arguments), target)


def test_what_cannot_be_joined_rightly_is_an_error(tmp_path, monkeypatch, cluster):
    monkeypatch.setattr(run, "SMALL_RANGE_BYTES", 300)
    rows = segments_of(["a\n\nb"] * 20)

    def changed(name, *changes):
        mine = [dict(row) for row in rows]
        for place, more in changes:
            mine[place] |= more
        return write_rows(tmp_path / name, mine, 2)

    refused(
        changed("apart", (39, {"id": "doc 0"})),
        tmp_path / "1",
        r"begins at .*00\.jsonl offset 0, but rows of other documents",
    )
    refused(changed("order", (1, {"segment_id": 0})), tmp_path / "2", "'doc 0' has segment 0 after segment 0")
    across = (20, {"id": "doc 9", "segment_id": 1})  # the first row of the second file
    refused(changed("across", across), tmp_path / "3", "has segment 1 after segment 1")
    number = (4, {"segment_id": None})
    refused(changed("null", number), tmp_path / "4", "'doc 2' has a segment whose number .*null")
    long = [(place, {"id": "doc 0", "segment_id": place, "text": "é" * 50}) for place in range(30)]
    refused(
        changed("long", *long), tmp_path / "5", r"'doc 0' has more than 1.* max_document_size", max_document_size="1kB"
    )


def test_what_follows_has_room_for_a_long_document(tmp_path):
    docs = write_rows(tmp_path / "in", segments_of(["a"]))
    short = cdf.explain(docs.pipe(cdf.join_documents, max_document_size="1MB"), memory="2GB")
    long = cdf.explain(docs.pipe(cdf.join_documents, max_document_size="5MB"), memory="2GB")
    assert long.held_bytes - short.held_bytes >= 4_000_000 * short.stages[-1].task_factor
    with pytest.raises(errors.BudgetError, match="for steps"):
        cdf.explain(docs.pipe(cdf.join_documents, max_document_size="1GB"), memory="2GB")


@pytest.mark.parametrize(("memory", "cpus"), [("480MB", "cpus=1 or "), ("510MB", "")])
def test_what_would_fit_is_more_memory_or_fewer_cpus(tmp_path, memory, cpus):
    docs = write_rows(tmp_path / "in", segments_of(["a"])).pipe(cdf.join_documents)
    with pytest.raises(errors.BudgetError, match=rf"budget, .* Use {cpus}memory='[0-9.]+MB'$") as refused:
        cdf.explain(docs, memory=memory, cpus=2)
    enough = read_size("memory", str(refused.value).rpartition("memory=")[2].strip("'"))
    assert read_size("memory", memory) < enough == cdf.explain(docs, memory=enough, cpus=2).layout.allowed_bytes
    if cpus:
        assert cdf.explain(docs, memory=memory, cpus=1).projected_bytes <= read_size("memory", memory)


@pytest.mark.parametrize("changed", [{"text": "title"}, {"id": "other"}, {"segment_id": "number"}], ids=str)
def test_each_column_is_part_of_what_a_resume_compares(changed):
    docs = table().assign(segment_id=table()["id"], number=table()["id"], other=table()["title"])
    assert fingerprints_of(cdf.join_documents(docs, **changed)) != fingerprints_of(cdf.join_documents(docs))


@pytest.mark.parametrize(
    ("arguments", "error", "said"),
    [
        ({"separator": None}, errors.ParameterError, "separator=None"),
        ({"max_chars": 0}, errors.ParameterError, "max_chars=0"),
        ({"max_document_size": "big"}, errors.ParameterError, "max_document_size"),
        ({"id": "body"}, errors.ColumnError, "'body'"),
        ({"id": "score"}, errors.SchemaError, "id='score' must be a column of text or integers"),
        ({"segment_id": "score"}, errors.SchemaError, "segment_id='score' must be a column of integers"),
        ({"id": "text"}, errors.ParameterError, "must be three different columns"),
    ],
)
def test_what_is_wrong_is_said_at_the_door(arguments, error, said):
    with pytest.raises(error, match=said):
        table().pipe(cdf.join_documents, **{"id": "title", "segment_id": "id", **arguments})
