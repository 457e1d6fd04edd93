# SPDX-License-Identifier: Apache-2.0
"""`split_rows` with groups: near duplicates are in one part, in any layout, and only of the table that they were found in."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import random

import dask.dataframe as dd
import pandas as pd
import pytest

import curator_df as cdf
from curator_df import errors
from curator_df.memory.process_cache import release_held
from tests.contracts.operator_cases import fingerprints_of, kernels_of
from tests.core.runner.fake_client import inline_cluster

PARTS = {"train": 0.5, "test": 0.3}


def write_texts(folder, families=60):
    """Write each text and a near duplicate of it into another file, between texts without any."""
    chosen = random.Random(7)
    words = [f"word{number}" for number in range(400)]
    rows = {"a": [], "b": []}
    for family in range(families):
        text = [chosen.choice(words) for _ in range(80)]
        rows["a"].append({"id": f"{family}-0", "family": family, "text": " ".join(text)})
        other = text if family % 2 else [chosen.choice(words) for _ in range(80)]
        rows["b"].append({"id": f"{family}-1", "family": family, "text": " ".join([*other[:-1], "end"])})
    folder.mkdir()
    for name, some in rows.items():
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in some))


@pytest.fixture
def session():
    with inline_cluster(memory="4GB", cpus=2) as opened:
        yield opened


@pytest.fixture
def docs(tmp_path):
    write_texts(tmp_path / "in")
    return cdf.read_jsonl(str(tmp_path / "in"), blocksize="5kB")


def ids_of(parts):
    return {name: part["id"].compute(scheduler="synchronous").tolist() for name, part in parts.items()}


def test_near_duplicates_are_in_one_part(docs, session, tmp_path):
    groups = cdf.find_near_duplicates(docs, workdir=tmp_path / "work")
    found = ids_of(cdf.split_rows(docs, PARTS, groups=groups))
    part_of = {row: name for name, rows in found.items() for row in rows}
    together = [part_of.get(f"{family}-0") == part_of.get(f"{family}-1") for family in range(1, 60, 2)]
    assert all(together)
    plain = ids_of(cdf.split_rows(docs, PARTS))
    apart = {row: name for name, rows in plain.items() for row in rows}
    assert not all(apart.get(f"{family}-0") == apart.get(f"{family}-1") for family in range(1, 60, 2))
    members = set(groups["offset"].compute(scheduler="synchronous"))
    assert members
    # A row in no group is where it is without groups.
    alone = [f"{family}-{copy}" for family in range(0, 60, 2) for copy in (0, 1)]
    assert [part_of.get(row) for row in alone] == [apart.get(row) for row in alone]
    assert not {*found["train"]} & {*found["test"]}


def test_the_parts_are_those_of_other_blocks_and_of_a_run(docs, session, tmp_path):
    groups = cdf.find_near_duplicates(docs, workdir=tmp_path / "work")
    wanted = ids_of(cdf.split_rows(docs, PARTS, groups=groups))
    whole = cdf.read_jsonl(str(tmp_path / "in"))
    (folder,) = [
        path.parent for path in (tmp_path / "work").rglob("_curator/receipt.json") if "find_" in path.parts[-3]
    ]
    assert ids_of(cdf.split_rows(whole.pipe(cdf.normalize_whitespace), PARTS, groups=folder.parent)) == wanted
    parts = cdf.split_rows(docs, PARTS, groups=groups)
    cdf.write_many({tmp_path / "out" / name: part for name, part in parts.items()})
    written = {name: pd.read_parquet(tmp_path / "out" / name, columns=["id"])["id"].tolist() for name in PARTS}
    assert written == wanted


def test_groups_are_part_of_the_program_and_of_the_plan(docs, session, tmp_path):
    near = cdf.find_near_duplicates(docs, workdir=tmp_path / "work")
    exact = cdf.find_exact_duplicates(docs, subset="family", workdir=tmp_path / "work")
    programs = [fingerprints_of(cdf.split_rows(docs, PARTS, groups=groups)["train"]) for groups in (None, near, exact)]
    assert len({tuple(program) for program in programs}) == 3
    (kernel,) = kernels_of(cdf.split_rows(docs, PARTS, groups=exact)["test"])
    assert kernel.price.held_bytes > 48 * 100
    assert kernel.uses_addresses


def test_groups_of_another_table_are_an_error(docs, session, tmp_path):
    groups = cdf.find_near_duplicates(docs, workdir=tmp_path / "work")
    write_texts(tmp_path / "other")
    other = cdf.read_jsonl(str(tmp_path / "other"))
    with pytest.raises(
        errors.ParameterError, match=r"belong to another table: .*other/a\.jsonl' was not among the files"
    ):
        cdf.split_rows(other, PARTS, groups=groups)
    # Groups of a release that did not keep the list of files.
    for path in (tmp_path / "work").rglob("searched.json.z"):
        path.unlink()
    with pytest.raises(errors.OperatorError, match=r"belong to another table: they name rows of .*a\.jsonl"):
        ids_of(cdf.split_rows(other, PARTS, groups=groups))


def _rewrite(path):
    path.write_text(path.read_text().replace("word1 ", "word2 "))


def _append(path):
    path.write_text(path.read_text() + "{}\n")


def _touch(path):
    stamp = path.stat().st_mtime_ns + 1_000_000_000
    os.utime(path, ns=(stamp, stamp))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda folder: _rewrite(folder / "b.jsonl"), r"in/b\.jsonl' was modified since"),
        (lambda folder: _touch(folder / "b.jsonl"), r"in/b\.jsonl' was modified since"),
        (
            lambda folder: _append(folder / "a.jsonl"),
            r"in/a\.jsonl' had [\d,]+ bytes and now has [\d,]+ bytes",
        ),
        (lambda folder: (folder / "c.jsonl").write_text("{}\n"), r"in/c\.jsonl' was not among the files of that table"),
        (lambda folder: (folder / "a.jsonl").unlink(), r"in/a\.jsonl' of that table is missing in this one"),
    ],
    ids=["rewritten", "touched", "appended", "added", "removed"],
)
def test_groups_of_files_that_have_changed_are_an_error_that_names_the_file(docs, session, tmp_path, change, said):
    groups = cdf.find_near_duplicates(docs, workdir=tmp_path / "work")
    cdf.split_rows(cdf.read_jsonl(str(tmp_path / "in")), PARTS, groups=groups)
    change(tmp_path / "in")
    changed = cdf.read_jsonl(str(tmp_path / "in"))
    with pytest.raises(
        errors.ParameterError,
        match=rf"groups= belong to another table: .*{said}\. Run find_exact_duplicates, find_near",
    ):
        cdf.split_rows(changed, PARTS, groups=groups)


@pytest.mark.parametrize(
    ("arguments", "error", "said"),
    [
        ({"groups": 5}, errors.ParameterError, "must be the Dask DataFrame that find_exact_duplicates"),
        ({"groups": "nowhere"}, errors.InputError, "which is not the complete result of find_exact_duplicates"),
        ({"groups": "nowhere", "group_column": "family"}, errors.ParameterError, "both say which rows belong together"),
    ],
)
def test_other_values_are_refused(docs, arguments, error, said):
    with pytest.raises(error, match=said):
        cdf.split_rows(docs, PARTS, **arguments)


def replaced(path):
    """Put another file of the same size in the place of one."""
    content, stamp = path.read_bytes(), path.stat().st_mtime_ns + 1_000_000_000
    path.write_bytes(content[:4] + content[4:-8][::-1] + content[-8:])
    os.utime(path, ns=(stamp, stamp))


def test_a_file_of_the_groups_that_was_replaced_is_named_and_the_search_writes_it_again(docs, session, tmp_path):
    groups = cdf.find_near_duplicates(docs, workdir=tmp_path / "work")
    wanted, parts = ids_of(cdf.split_rows(docs, PARTS, groups=groups)), cdf.split_rows(docs, PARTS, groups=groups)
    (path,) = (path for path in (tmp_path / "work").rglob("part-*.parquet"))
    content = path.read_bytes()
    replaced(path)
    release_held()
    with pytest.raises(errors.InputChangedError, match=rf"{path.name}' changed after it was listed"):
        ids_of(parts)
    for refused in (
        lambda: cdf.split_rows(docs, PARTS, groups=groups),
        lambda: cdf.describe_near_duplicates(groups),
        lambda: cdf.audit_duplicates(path.parent, docs),
    ):
        with pytest.raises(errors.InputChangedError, match=rf"{path.name}', a file of groups=, is missing or is not"):
            refused()
    again = cdf.find_near_duplicates(docs, workdir=tmp_path / "work")
    assert path.read_bytes() == content
    assert ids_of(cdf.split_rows(docs, PARTS, groups=again)) == wanted
    path.unlink()
    assert (
        ids_of(cdf.split_rows(docs, PARTS, groups=cdf.find_near_duplicates(docs, workdir=tmp_path / "work"))) == wanted
    )


@pytest.mark.parametrize(
    "then", [contextlib.nullcontext, functools.partial(inline_cluster, memory="4GB")], ids=["none", "another"]
)
def test_groups_of_a_table_of_pandas_are_gone_with_the_cluster_and_that_is_said(tmp_path, then):
    docs = dd.from_pandas(pd.DataFrame({"text": ["a", "b", "a"]}), npartitions=1)
    with inline_cluster(memory="4GB"):
        groups = cdf.find_exact_duplicates(docs, workdir=tmp_path / "work")
        assert cdf.drop_exact_duplicates(docs, groups=groups).columns.tolist() == ["text"]
    said = r"groups= were found in a table of Dask or pandas, whose rows lay in the working files of a cluster that is closed, so"
    with then():
        for use in (cdf.drop_exact_duplicates, functools.partial(cdf.split_rows, parts=PARTS)):
            with pytest.raises(errors.ParameterError, match=said):
                use(docs, groups=groups)
        with pytest.raises(errors.ParameterError, match=said):
            cdf.audit_duplicates(groups, docs)


def test_groups_among_the_working_files_of_a_closed_cluster_are_said_to_be_deleted(docs):
    with inline_cluster(memory="4GB"):
        groups = cdf.find_exact_duplicates(docs)
    with pytest.raises(
        errors.InputError, match="It has no files: a result without workdir= is among the working files of its"
    ):
        cdf.drop_exact_duplicates(docs, groups=groups)


def test_a_drop_whose_groups_went_with_their_cluster_is_refused_before_anything_is_written(docs, tmp_path):
    with inline_cluster(memory="4GB") as session:
        groups = cdf.find_exact_duplicates(docs)
        dropped = cdf.drop_exact_duplicates(docs, groups=groups)
        folder = session.workdir
    said = r"groups passed as groups= were stored in \S*/find_exact_duplicates-\w+, which is gone: a result without"
    with inline_cluster(memory="4GB"):
        for use in (functools.partial(cdf.write_parquet, path=tmp_path / "out"), len, cdf.find_exact_duplicates):
            with pytest.raises(errors.InputError, match=said):
                use(dropped)
    assert not (tmp_path / "out").exists()
    assert not os.path.exists(folder)


def test_a_drop_of_a_table_of_pandas_is_refused_in_another_cluster_than_that_of_its_groups(tmp_path):
    docs = dd.from_pandas(pd.DataFrame({"text": ["a", "b", "a"]}), npartitions=1)
    with inline_cluster(memory="4GB"):
        dropped = cdf.drop_exact_duplicates(docs, groups=cdf.find_exact_duplicates(docs, workdir=tmp_path / "work"))
    said = "drop_exact_duplicates: groups= were found in a table of Dask or pandas, whose rows lay in the working files of a"
    with inline_cluster(memory="4GB"), pytest.raises(errors.ParameterError, match=said):
        cdf.write_parquet(dropped, tmp_path / "out", on_existing="overwrite")
    assert not (tmp_path / "out").exists()


def test_a_drop_of_groups_is_previewed_among_the_rows_of_the_preview(docs, session):
    groups = cdf.find_near_duplicates(docs)
    searched, found = (cdf.preview(cdf.drop_near_duplicates(docs, groups=given)) for given in (None, groups))
    assert found.kept.equals(searched.kept)
    assert found.receipt.rows_dropped > 0
    with pytest.raises(
        errors.ParameterError,
        match="preview: split_rows has groups=, which names rows by their positions in the whole input",
    ):
        cdf.preview(cdf.split_rows(docs, PARTS, groups=groups)["train"])
