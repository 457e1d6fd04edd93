# SPDX-License-Identifier: Apache-2.0
"""Duplicates as a table on disk, and a drop from it, through whole runs in this process."""

import collections
import json
import os
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest

import curator_df as cdf
from curator_df import errors
from curator_df.core.runner import run
from curator_df.core.runner.events import StageStarted
from curator_df.core.runner.session import current_session
from curator_df.ops.duplicates.group_table import COLUMNS
from tests.core.runner.fake_client import inline_cluster

ROWS = [{"id": n, "text": f"text {n * n % 17}", "score": (n * 7) % 10} for n in range(60)]
FIRST = [n for n in range(60) if n * n % 17 not in {m * m % 17 for m in range(n)}]


@pytest.fixture(scope="module", autouse=True)
def cluster():
    with inline_cluster(memory="2GB", cpus=2) as running:
        yield running


@pytest.fixture
def folder(tmp_path):
    folder = tmp_path / "in"
    folder.mkdir()
    for part in range(3):
        rows = ROWS[20 * part : 20 * part + 20]
        (folder / f"{part}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(folder)


@pytest.fixture(params=[10**9, 200], ids=["one range", "many ranges"])
def docs(request, folder, monkeypatch):
    monkeypatch.setattr(run, "SMALL_RANGE_BYTES", request.param)
    return cdf.read_jsonl(folder)


def ids_in(folder):
    return [number for path in sorted(folder.glob("*.parquet")) for number in pq.read_table(path)["id"].to_pylist()]


def test_each_duplicate_is_listed_with_the_row_it_repeats(docs, tmp_path):
    members = cdf.find_exact_duplicates(docs, workdir=tmp_path / "work").compute()
    rows = docs.compute()
    sizes = collections.Counter(row["text"] for row in ROWS)
    assert sorted(rows.loc[members.address].id) == [n for n in range(60) if sizes[ROWS[n]["text"]] > 1]
    assert members.group_size.tolist() == [sizes[text] for text in rows.loc[members.address].text]
    assert rows.loc[members.group].text.tolist() == rows.loc[members.address].text.tolist()
    assert members.kept.tolist() == (members.group == members.address).tolist()
    kept, groups = members[members.kept], members[~members.kept]
    assert kept.group.is_unique
    assert kept[["matched_address", "matched_file", "matched_offset", "jaccard"]].isna().all(axis=None)
    assert (groups.jaccard == 1.0).all()
    assert sorted(rows.loc[groups.address].id) == [n for n in range(60) if n not in FIRST]
    assert rows.loc[groups.address].text.tolist() == rows.loc[groups.matched_address].text.tolist()
    assert set(rows.loc[groups.matched_address].id) == {n for n in FIRST if sizes[ROWS[n]["text"]] > 1}
    for row in groups.itertuples():
        with open(row.file, "rb") as file:
            file.seek(row.offset)
            again = json.loads(file.readline())["text"]
        with open(row.matched_file, "rb") as file:
            file.seek(row.matched_offset)
            assert json.loads(file.readline())["text"] == again
    receipt = cdf.read_receipt(cdf.find_exact_duplicates(docs, workdir=tmp_path / "work"))
    assert (receipt.rows_read, receipt.rows_written) == (60, len(members))
    assert (receipt.exchanges[0].keys, receipt.exchanges[0].unique) == (60, len(FIRST))


def test_a_drop_from_groups_reads_the_text_once(docs, tmp_path):
    groups = cdf.find_exact_duplicates(docs, workdir=tmp_path / "work")
    for number, given in enumerate((groups, cdf.read_receipt(groups).output)):
        clean = cdf.drop_exact_duplicates(docs, groups=given)
        assert [stage.title for stage in cdf.explain(clean).stages] == ["write"]
        receipt = cdf.write_parquet(clean, tmp_path / f"out{number}")
        assert ids_in(tmp_path / f"out{number}") == FIRST
        assert receipt.exchanges == cdf.read_receipt(groups).exchanges
    again = cdf.find_exact_duplicates(docs, workdir=tmp_path / "work")  # it is still there
    assert (~again.compute().kept).sum() == 60 - len(FIRST)


def test_drops_that_were_replaced_by_those_of_another_search_are_found_again(docs, tmp_path):
    groups = cdf.find_exact_duplicates(docs, workdir=tmp_path / "work")
    cdf.find_exact_duplicates(docs, keep="last", workdir=tmp_path / "other")
    (ours, *_), (others, *_) = (sorted((tmp_path / name).rglob("drops/**/*.slices")) for name in ("work", "other"))
    assert ours.stat().st_size == others.stat().st_size
    ours.write_bytes(others.read_bytes())
    os.utime(ours, ns=(0, ours.stat().st_mtime_ns + 1_000_000_000))
    cdf.write_parquet(cdf.drop_exact_duplicates(docs, groups=groups), tmp_path / "out")
    assert ids_in(tmp_path / "out") == FIRST


def test_drops_that_are_replaced_under_a_run_are_an_error(docs, tmp_path):
    groups = cdf.find_exact_duplicates(docs, workdir=tmp_path / "work")
    cdf.find_exact_duplicates(docs, keep="last", workdir=tmp_path / "other")
    ours, others = (sorted((tmp_path / name).rglob("drops/**/*.slices")) for name in ("work", "other"))
    session = current_session()

    def replace_all(event):
        if isinstance(event, StageStarted):
            for path, other in zip(ours, others, strict=True):
                path.write_bytes(other.read_bytes())
                os.utime(path, ns=(0, path.stat().st_mtime_ns + 1_000_000_000))

    session.watchers.append(replace_all)
    try:
        with pytest.raises(
            errors.CorruptFileError, match=r"\.slices is damaged: it is not the file that the run wrote"
        ):
            cdf.write_parquet(cdf.drop_exact_duplicates(docs, groups=groups), tmp_path / "out")
    finally:
        session.watchers.remove(replace_all)
    cdf.write_parquet(cdf.drop_exact_duplicates(docs, groups=groups), tmp_path / "out", on_existing="resume")
    assert ids_in(tmp_path / "out") == FIRST


def test_the_policy_comes_with_the_groups(docs, tmp_path):
    keep = cdf.best("score")
    groups = cdf.find_exact_duplicates(docs, keep=keep, workdir=tmp_path / "work")
    cdf.write_parquet(cdf.drop_exact_duplicates(docs, groups=groups), tmp_path / "a")
    cdf.write_parquet(cdf.drop_exact_duplicates(docs, keep=keep, groups=groups), tmp_path / "b")
    cdf.write_parquet(cdf.drop_exact_duplicates(docs, keep=keep), tmp_path / "c")
    assert ids_in(tmp_path / "a") == ids_in(tmp_path / "b") == ids_in(tmp_path / "c") != FIRST
    with pytest.raises(errors.ParameterError, match=r"found with keep=\{.*\}, but this call has keep='last'\. Leave"):
        cdf.drop_exact_duplicates(docs, keep="last", groups=groups)


def test_groups_of_another_table_are_refused(docs, folder, tmp_path):
    groups = cdf.find_exact_duplicates(docs, workdir=tmp_path / "work")
    with pytest.raises(errors.ParameterError, match="belong to another table: the steps changed from none to "):
        cdf.drop_exact_duplicates(docs.curate.keep_where("id > 3"), groups=groups)
    with pytest.raises(errors.InputError, match="is not the complete result of find_exact_duplicates"):
        cdf.drop_exact_duplicates(docs, groups=docs)
    with pytest.raises(errors.InputError, match=r"found by find_exact_duplicates\. .* with find_near_duplicates"):
        cdf.drop_near_duplicates(docs, groups=groups)
    with pytest.raises(errors.ParameterError, match="got a pandas DataFrame"):
        cdf.drop_exact_duplicates(docs, groups=groups.compute())
    with open(f"{folder}/0.jsonl", "a") as file:
        file.write('{"id": 99, "text": "new", "score": 1}\n')
    with pytest.raises(errors.ParameterError, match=r"in/0\.jsonl' had [\d,]+ bytes and now has [\d,]+ bytes"):
        cdf.drop_exact_duplicates(cdf.read_jsonl(folder), groups=groups)


def test_behind_another_drop_and_without_duplicates(docs, tmp_path):
    once = docs.curate.drop_exact_duplicates()
    groups = cdf.find_exact_duplicates(once, workdir=tmp_path / "work")
    assert len(groups) == 0
    assert groups.columns.tolist()[:3] == ["address", "file", "offset"]
    cdf.write_parquet(cdf.drop_exact_duplicates(once, groups=groups), tmp_path / "out")
    assert ids_in(tmp_path / "out") == FIRST


SECOND_PROCESS = """
import sys, curator_df as cdf
from tests.core.runner.fake_client import inline_cluster
if __name__ == "__main__":
    with inline_cluster("700MB", workdir=sys.argv[2]):
        groups = cdf.find_exact_duplicates(cdf.read_jsonl(sys.argv[1]))
        print(cdf.read_receipt(groups).allowed_bytes, (~groups.compute().kept).sum())
"""


def test_a_second_process_finds_what_the_first_left(folder, tmp_path):
    script = tmp_path / "second.py"
    script.write_text(SECOND_PROCESS)
    cdf.find_exact_duplicates(cdf.read_jsonl(folder), workdir=tmp_path / "work")
    command = [sys.executable, str(script), folder, str(tmp_path / "work")]
    here = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    said = subprocess.run(command, capture_output=True, text=True, check=True, timeout=280, env=here).stdout.split()
    assert said == ["2000000000", str(60 - len(FIRST))]  # the receipt of the first process


def test_without_a_folder_it_lies_with_the_cluster(folder):
    groups = cdf.find_exact_duplicates(cdf.read_jsonl(folder))
    assert os.path.isdir(cdf.read_receipt(groups).output)


NAMES = {n: None if n == 7 else f"document {n}" for n in range(60)}


@pytest.mark.parametrize(("column", "keep"), [("id", "last"), ("name", "first")])
def test_rows_and_what_they_matched_are_named(docs, tmp_path, column, keep):
    named = docs.map_partitions(lambda block: block.assign(name=block["id"].map(NAMES).astype("string")))
    groups = cdf.find_exact_duplicates(named, id=column, keep=keep, workdir=tmp_path / "work")
    assert groups.columns.tolist()[:3] == ["id", "matched_id", "address"]
    found, rows = groups.compute(), named.compute()
    assert found["id"].dtype == ("Int64" if column == "id" else "string")
    assert found["id"].tolist() == rows.loc[found.address][column].tolist()
    going = found[~found.kept]
    assert going["matched_id"].tolist() == rows.loc[going.matched_address][column].tolist()
    assert found[found.kept]["matched_id"].isna().all()
    assert (
        cdf.find_exact_duplicates(named, keep=keep, workdir=tmp_path / "work")
        .compute()
        .equals(found[[*COLUMNS, "jaccard"]])
    )
    cdf.write_parquet(cdf.drop_exact_duplicates(named, groups=groups), tmp_path / "out")
    cdf.write_parquet(cdf.drop_exact_duplicates(named, keep=keep), tmp_path / "same")
    assert ids_in(tmp_path / "out") == ids_in(tmp_path / "same")


def test_an_id_that_cannot_name_rows_is_refused(docs, tmp_path):
    with pytest.raises(errors.ColumnError, match="find_exact_duplicates needs the column 'key'"):
        cdf.find_exact_duplicates(docs, id="key", workdir=tmp_path)
    halves = docs.assign(half=docs.score / 2)
    with pytest.raises(errors.SchemaError, match="id='half' must be a column of text or integers, but it holds"):
        cdf.find_exact_duplicates(halves, id="half", workdir=tmp_path)


def without_memory_for_40(block):
    if (block.id == 40).any():
        raise MemoryError
    return block.id >= 0


@pytest.mark.parametrize("find", [cdf.find_exact_duplicates, cdf.find_near_duplicates])
def test_rows_that_are_set_aside_are_counted_and_kept_through_all_passes(folder, tmp_path, find):
    bad, numbers = "no JSON", " ".join(map(str, range(99)))
    pair = [{"id": 61, "text": f"{numbers} a"}, {"id": 62, "text": f"{numbers} b"}]  # fetched in a pass of its own
    with open(f"{folder}/2.jsonl", "a") as file:
        file.writelines(f"{line}\n" for line in (bad, *map(json.dumps, pair)))
    docs = cdf.read_jsonl(folder, on_bad_rows="quarantine").pipe(cdf.keep_where, without_memory_for_40)
    with pytest.warns(UserWarning, match=r"1 row did not fit .* without a comparison, with file"):
        receipt = cdf.read_receipt(find(docs, workdir=tmp_path / "work"))
    assert (receipt.rows_read, receipt.rows_quarantined, receipt.rows_out_of_memory) == (63, 2, 1)
    (path,) = Path(receipt.quarantine_folder).iterdir()
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    assert [json.loads(row["raw"]) for row in rows if "bytes" in row] == [ROWS[40]]
    assert [row["raw"] for row in rows if "bytes" not in row] == [bad]
    assert {row["file"] for row in rows} == {f"{folder}/2.jsonl"}
    assert receipt.quarantine_folder in receipt.advice[0]
    receipt.save(tmp_path / "report.html")
    assert f"{receipt.quarantine_folder} contains the file, offset" in (tmp_path / "report.html").read_text()


@pytest.mark.parametrize("find", [cdf.find_exact_duplicates, cdf.find_near_duplicates])
def test_without_halving_the_first_row_without_memory_is_the_error(docs, tmp_path, find):
    docs = docs.pipe(cdf.keep_where, without_memory_for_40)
    with pytest.raises(MemoryError):
        find(docs, workdir=tmp_path / "work", on_oom="raise")
    assert not list(tmp_path.glob("work/**/_quarantine"))
    with pytest.raises(errors.ParameterError, match=r"on_oom='quarter' is not one of 'retry', 'raise'"):
        find(docs, workdir=tmp_path / "work", on_oom="quarter")


def cannot_read_40(block):
    if (block.id == 40).any():
        raise ValueError("forty")
    return block.id >= 0


@pytest.mark.parametrize("find", [cdf.find_exact_duplicates, cdf.find_near_duplicates])
def test_rows_on_which_a_function_raises_end_the_search_or_are_set_aside(docs, tmp_path, find):
    docs = docs.pipe(cdf.keep_where, cannot_read_40)
    with pytest.raises(errors.OperatorError, match="forty"):
        find(docs, workdir=tmp_path / "work")
    groups = find(docs, workdir=tmp_path / "other", on_error="quarantine")
    receipt = cdf.read_receipt(groups)
    assert (receipt.rows_read, receipt.rows_quarantined, receipt.rows_out_of_memory) == (60, 1, 0)
    (path,) = Path(receipt.quarantine_folder).iterdir()
    (row,) = [json.loads(line) for line in path.read_text().splitlines()]
    assert json.loads(row["raw"]) == ROWS[40]
    drop = cdf.drop_exact_duplicates if find is cdf.find_exact_duplicates else cdf.drop_near_duplicates
    written = cdf.write_parquet(drop(docs, groups=groups), tmp_path / "out", on_error="quarantine")
    assert (written.rows_quarantined, written.rows_written) == (1, 59 - int((~groups.compute().kept).sum()))
    with pytest.raises(errors.ParameterError, match=r"on_error='skip' is not one of 'raise', 'quarantine'"):
        find(docs, workdir=tmp_path / "work", on_error="skip")
