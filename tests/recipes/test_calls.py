# SPDX-License-Identifier: Apache-2.0
"""Recipes and the public functions: each operator can be a step, and what a chain in Python calls comes back from a file."""

import dataclasses
import inspect
import re
from pathlib import Path

import pytest

import curator_df as cdf
from curator_df.core.planning.recorded_recipe import recipe_values
from curator_df.core.recorded_calls import Call
from curator_df.errors import RecipeError
from curator_df.receipts.recipe_file import dump
from curator_df.recipes.calls import TABLE_PARAMETERS, makes_parts, readers, steps, writers
from curator_df.recipes.parameter_types import OneOf, Refused, parameters_of
from tests.contracts.operator_cases import ALL_OPERATORS, CASES, fingerprints_of
from tests.contracts.operator_rows import ROWS

PAGE = Path(__file__).resolve().parents[2] / "docs/recipes.md"
FUNCTIONS = {**readers(), **steps(), **writers(), "start_cluster": cdf.start_cluster}


def test_readers_steps_and_writers_are_what_their_signatures_say():
    assert sorted(readers()) == ["blend", "concat", "csv", "delta", "iceberg", "jsonl", "parquet", "text_files", "warc"]
    assert sorted(writers()) == ["by", "jsonl", "many", "parquet", "tokens"]
    assert set(ALL_OPERATORS) <= set(steps())
    assert {"checkpoint", "shuffle_rows", "to_backend", "find_near_duplicates"} <= set(steps())
    assert not {"describe_drops", "explain", "preview", "forget", "write_parquet"} & set(steps())
    assert [name for name in steps() if makes_parts(name)] == ["split_rows"]


@pytest.mark.parametrize(("part", "functions"), [("read", readers), ("write", writers)])
def test_the_page_names_every_reader_and_writer(part, functions):
    (row,) = (line for line in PAGE.read_text().splitlines() if line.startswith(f"| `{part}` |"))
    assert set(functions()) <= set(re.findall(r"`(\w+)`", row))


def test_a_file_can_hold_every_parameter_of_every_function():
    refused = [
        (name, parameter)
        for name, function in FUNCTIONS.items()
        for parameter, (kind, _) in parameters_of(function).items()
        if isinstance(kind, Refused)
        or (isinstance(kind, OneOf) and all(isinstance(one, Refused) for one in kind.types))
    ]
    assert refused == []


def in_a_file(case, folder):
    """Write the rows of a case, apply its operator, and return the fingerprints of the steps and the recipe."""
    path = folder / "rows.parquet"
    case.prepared(ROWS).to_parquet(path, index=False)
    made = dataclasses.replace(case, before=None)(cdf.read_parquet(path))
    run = Call(inspect.unwrap(cdf.write_parquet), {"df": made, "path": "out"})
    if case.part:
        run = Call(inspect.unwrap(cdf.write_many), {"tables": {"out": made}})
    return fingerprints_of(made), recipe_values(run)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_call_of_an_operator_comes_back_from_a_file(case, tmp_path):
    try:
        prints, recipe = in_a_file(case, tmp_path)
    except RecipeError as exc:
        gap = str(exc)
    else:
        path = tmp_path / "a.yaml"
        path.write_text(dump(recipe))
        table = cdf.load_recipe(path).table()
        assert fingerprints_of(table[case.part] if case.part else table) == prints
        return
    assert any(
        word in gap for word in ("is the function", "may be a secret", "is a LetterEntities", "other= is a DataFrame")
    ), gap
    assert gap.startswith(f"{case.operator}: ")


def test_a_table_of_files_that_is_joined_comes_back_from_a_file(tmp_path):
    for name in ("docs", "labels"):
        (tmp_path / f"{name}.jsonl").write_text('{"id": 1, "text": "a"}\n')
    labels = cdf.read_jsonl(tmp_path / "labels.jsonl", columns=["id"])
    made = cdf.join(cdf.read_jsonl(tmp_path / "docs.jsonl"), labels, on="id", how="semi")
    path = tmp_path / "a.yaml"
    path.write_text(dump(recipe_values(Call(inspect.unwrap(cdf.write_parquet), {"df": made, "path": "out"}))))
    assert fingerprints_of(cdf.load_recipe(path).table()) == fingerprints_of(made)


def test_most_cases_are_held_by_a_file(tmp_path):
    held = set()
    for number, case in enumerate(CASES):
        folder = tmp_path / str(number)
        folder.mkdir()
        try:
            in_a_file(case, folder)
        except RecipeError:
            continue
        held.add(case.operator)
    assert {case.operator for case in CASES} - held <= {
        "add_class",
        "add_embedding",
        "keep_class",
        "join",
    }  # of functions, and a pandas table


def test_the_recipe_fills_tables_by_itself(tmp_path):
    path = tmp_path / "a.yaml"
    path.write_text(
        "read: {parquet: {paths: in}}\nsteps:\n- keep_where: {df: 1, predicate: a}\nwrite: {jsonl: {path: o}}\n"
    )
    assert "df" in TABLE_PARAMETERS
    with pytest.raises(RecipeError, match=r"a.yaml:3: steps.keep_where.df: keep_where has no parameter 'df'"):
        cdf.load_recipe(path)
