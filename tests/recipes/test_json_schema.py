# SPDX-License-Identifier: Apache-2.0
"""JSON Schema of recipes: it is valid, the kept file is up to date, and it accepts and refuses what `load_recipe` does."""

import json
from pathlib import Path

import pytest
import yaml

import curator_df as cdf
from curator_df.errors import RecipeError
from curator_df.receipts.recipe_file import dump
from curator_df.recipes.calls import readers, steps, writers
from curator_df.recipes.json_schema import recipe_schema
from curator_df.recipes.parameter_types import public_makers
from curator_df.recipes.shipped import shipped_names, shipped_text
from tests.contracts.operator_cases import CASES
from tests.recipes.test_calls import in_a_file

jsonschema = pytest.importorskip("jsonschema", reason="needs jsonschema, which comes with nbformat of the test extra")
KEPT = Path(__file__).resolve().parents[2] / "docs/recipe.schema.json"


@pytest.fixture(scope="module")
def validator():
    schema = recipe_schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema)


def test_the_kept_schema_is_that_of_the_signatures():
    said = "run `curator-df recipe schema > docs/recipe.schema.json`"
    assert json.loads(KEPT.read_text()) == json.loads(json.dumps(recipe_schema())), said


def test_the_schema_has_every_function_and_maker():
    schema = recipe_schema()
    assert set(schema["$defs"]["step"]["anyOf"][-1]["properties"]) == set(steps())
    for part, functions in (("read", readers()), ("write", writers())):
        found = schema["$defs"]["read"] if part == "read" else schema["properties"]["write"]
        assert set(found["anyOf"][-1]["properties"]) == set(functions)
    named = set(schema["$defs"]) - {"table", "read", "step", "steps"}
    assert {"Profile", "Rule", "Scheme", "Best", "best", "fineweb_2", "model", "presidio", "resources"} <= named
    assert named <= set(public_makers())


@pytest.mark.parametrize("name", shipped_names())
def test_shipped_recipes_are_valid(validator, name):
    assert [error.message for error in validator.iter_errors(yaml.safe_load(shipped_text(name)))] == []


@pytest.mark.parametrize("case", CASES, ids=str)
def test_recorded_calls_are_valid(validator, case, tmp_path):
    try:
        _, recipe = in_a_file(case, tmp_path)
    except RecipeError:
        pytest.skip("by nature: a file cannot hold the function of this case")
    errors = [error.message for error in validator.iter_errors(yaml.safe_load(dump(recipe)))]
    assert errors == []


READ, WRITE = "read: {jsonl: {paths: in}}", "write: {jsonl: {path: out}}"


@pytest.mark.parametrize(
    "text",
    [
        f"{WRITE}",
        f"reads: 1\n{READ}\n{WRITE}",
        f"read: {{jsonl: {{path: in}}}}\n{WRITE}",
        f"read: {{jsonl: {{paths: 7}}}}\n{WRITE}",
        f"read: jsonl\n{WRITE}",
        f"read: {{jsonl: {{paths: in, blocksize: 8}}}}\n{WRITE}",
        f"{READ}\nsteps: [normalize_unicod]\n{WRITE}",
        f"{READ}\nsteps: [keep_where]\n{WRITE}",
        f"{READ}\nsteps: [{{keep_where: a}}]\n{WRITE}",
        f"{READ}\nsteps: [{{keep_where: {{predicate: a}}, remove_html: {{}}}}]\n{WRITE}",
        f"{READ}\nsteps: [{{keep_profile: {{profile: nope}}}}]\n{WRITE}",
        f"{READ}\nsteps: [{{keep_profile: {{profile: [nope]}}}}]\n{WRITE}",
        f"{READ}\nsteps: [{{keep_profile: {{profile: {{fineweb_2: {{lang: de}}}}}}}}]\n{WRITE}",
        f"{READ}\nsteps: [{{sample_rows: {{fraction: '0.5'}}}}]\n{WRITE}",
        f"{READ}\nsteps: {{remove_html: }}\n{WRITE}",
        f"{READ}\n{WRITE}\ncluster: {{memory: 8}}",
        f"{READ}\n{WRITE}\ncluster: {{memory: 8 pounds}}",
        f"{READ}\n{WRITE}\nabout: {{sources: a}}",
        f"{READ}\nwrite: {{parquet: {{path: out, on_existing: never}}}}",
    ],
)
def test_what_the_schema_refuses_is_refused(validator, text, tmp_path):
    assert list(validator.iter_errors(yaml.safe_load(text)))
    (tmp_path / "a.yaml").write_text(text)
    with pytest.raises(RecipeError):
        cdf.load_recipe(tmp_path / "a.yaml")
