# SPDX-License-Identifier: Apache-2.0
"""The recipe in a receipt: the file repeats the run, and what a file cannot hold is said with its step."""

import hashlib
import json
import shutil

import numpy as np
import pytest
import yaml

import curator_df as cdf
from curator_df.core.planning import recorded_recipe
from curator_df.errors import RecipeError
from curator_df.models.presidio import Presidio, SpacyPipeline
from curator_df.profiles import DATATROVE_GOPHER_QUALITY, fineweb_2
from curator_df.receipts.receipt import Receipt
from tests.core.runner.fake_client import inline_cluster

GOOD = "The cat and the dog have been to the house of a friend, and that was good with them. "


@pytest.fixture(autouse=True)
def _here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows = [{"n": n, "text": GOOD * 5 + str(n % 7) if n % 2 else f"short {n}"} for n in range(40)]
    (tmp_path / "in.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


def files_of(folder):
    """Return the names and digests of the output files of a run."""
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(folder.glob("part-*"))}


def chain():
    docs = cdf.read_jsonl("in.jsonl", blocksize="1MB").pipe(cdf.normalize_unicode)
    docs = docs.pipe(cdf.keep_profile, DATATROVE_GOPHER_QUALITY.replace(words="whitespace", gopher_short_doc=9))
    return docs.curate.drop_near_duplicates(scheme="fineweb", keep=cdf.best("n"))


def test_the_recipe_of_a_chain_repeats_its_run(tmp_path):
    with inline_cluster("2GB", 1):
        first = cdf.write_parquet(chain(), tmp_path / "out", rejects="rejects", on_existing="overwrite")
    (tmp_path / "again.yaml").write_text(cdf.read_receipt("out").recipe())
    before = files_of(tmp_path / "out")
    shutil.rmtree("out")
    shutil.rmtree("rejects")
    recipe = cdf.load_recipe("again.yaml")
    second = recipe.run()  # on a cluster of its own
    assert files_of(tmp_path / "out") == before
    assert [(step.name, step.rows_in, step.rows_out) for step in second.steps] == [
        (step.name, step.rows_in, step.rows_out) for step in first.steps
    ]
    assert second.recipe_text == first.recipe_text
    assert second.allowed_bytes == first.allowed_bytes
    with inline_cluster("2GB", 1):
        assert recipe.run(on_existing="resume").started == second.started  # complete: nothing ran
    assert yaml.safe_load(second.recipe()) == {
        "about": {"reproduces": f"the run that wrote {tmp_path}/out", "source": f"its receipt; {second.made()}"},
        "read": {"jsonl": {"paths": "in.jsonl", "blocksize": "1MB"}},
        "steps": [
            "normalize_unicode",
            {
                "keep_profile": {
                    "profile": {
                        "replace": {"of": "datatrove_gopher_quality", "gopher_short_doc": 9, "words": "whitespace"}
                    }
                }
            },
            {"drop_near_duplicates": {"scheme": "fineweb", "keep": {"Best": {"column": "n", "which": "max"}}}},
        ],
        "write": {"parquet": {"path": str(tmp_path / "out"), "rejects": "rejects"}},
        "cluster": {"memory": "2GB", "cpus": 1},
    }


def recipe_of(docs, **options):
    with inline_cluster():
        return cdf.write_parquet(docs, "out", on_existing="overwrite", **options).recipe()


def docs_of():
    return cdf.read_jsonl("in.jsonl")


def unrecorded(docs):
    from curator_df.ops.cleaning.normalization import normalize_newlines

    return normalize_newlines(docs)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda d: d[d.n > 3], r"the step filter is an operation of Dask.*keep_where with an expression"),
        (
            lambda d: cdf.keep_where(d[["n"]], "n > 3"),
            r"the step columns, which leaves out .*'text'.* is an operation of Dask.*with columns=\['n'\] of the reader",
        ),
        (lambda d: d.drop(columns="text"), r"the step drop, which leaves out 'text', .*columns=\['n'"),
        (lambda d: cdf.normalize_unicode(d[["n", "text"]]), r"the step .* is an operation of Dask"),
        (lambda d: cdf.keep_where(d, lambda b: b.n > 3), r"keep_where: predicate= is the function <lambda>"),
        (lambda d: cdf.redact_pii(d, replacement="hash", key="k"), r"redact_pii: key= may be a secret"),
        (unrecorded, r"normalize_newlines was not called as curator_df\.normalize_newlines"),
        (lambda d: cdf.split_rows(d, {"a": 0.5})["a"], r"the table is one part \('a'\) of split_rows"),
        (lambda d: cdf.remove_lines(d, ["x" * recorded_recipe.LONGEST]), r"stores at most 1,000,000"),
        (
            lambda d: cdf.add_metrics(d, [cdf.UserMetric("size", len)]),
            r"add_metrics: function= is the function len",
        ),
    ],
)
def test_what_a_file_cannot_hold_is_said_with_its_step(change, said):
    docs = change(docs_of())
    with inline_cluster():
        receipt = cdf.write_parquet(docs, "out")
    with pytest.raises(RecipeError, match=said):
        receipt.recipe()
    with pytest.raises(RecipeError, match="cannot be saved as a recipe"):
        cdf.read_receipt("out").recipe()


def test_secrets_of_stores_are_not_stored():
    with pytest.raises(RecipeError, match=r"storage_options= has 'secret', which may be a secret"):
        recorded_recipe._plain("read_jsonl", "storage_options", {"secret": "abc"})
    with pytest.raises(RecipeError, match=r"storage_options= has 'aws_access_key'"):
        recorded_recipe._plain("read_jsonl", "storage_options", {"client": {"aws_access_key": "abc"}})
    assert recorded_recipe._plain("read_jsonl", "storage_options", {"anon": True}) == {"anon": True}


def test_parts_and_steps_that_run_are_in_the_recipe(tmp_path):
    with inline_cluster():
        parts = cdf.split_rows(docs_of(), {"train": 0.8, "test": 0.2})
        receipts = cdf.write_many({tmp_path / "a": parts["train"], "b": parts["test"]}, format="jsonl")
        stored = cdf.checkpoint(docs_of().pipe(cdf.keep_where, "n > 3"), "stored")
        other = cdf.write_many({"c": docs_of(), "d": cdf.keep_where(docs_of(), "n > 3")})
        cdf.write_by(docs_of(), "by", partition_on="n")
        found = cdf.read_receipt(cdf.find_exact_duplicates(docs_of())).recipe_text
    many = yaml.safe_load(receipts["b"].recipe_text)
    assert many["write"] == {"many": {"tables": {f"{tmp_path}/a": "train", "b": "test"}, "format": "jsonl"}}
    assert many["steps"] == [{"split_rows": {"parts": {"train": 0.8, "test": 0.2}}}]
    assert yaml.safe_load(cdf.read_receipt(stored).recipe_text) == {
        "read": {"jsonl": {"paths": "in.jsonl"}},
        "steps": [{"keep_where": {"predicate": "n > 3"}}, {"checkpoint": {"path": "stored"}}],
    }
    assert "unchanged parts from one call of split_rows" in other["c"].recipe_gap
    assert yaml.safe_load(cdf.read_receipt("by").recipe_text)["write"] == {"by": {"path": "by", "partition_on": "n"}}
    assert yaml.safe_load(found)["steps"] == ["find_exact_duplicates"]


def test_a_receipt_of_an_earlier_version_has_no_recipe():
    with pytest.raises(
        RecipeError, match="a run of an earlier version of curator_df, whose receipts do not store recipes"
    ):
        Receipt("out").recipe()


@pytest.mark.parametrize(
    ("profile", "wanted"),
    [
        (DATATROVE_GOPHER_QUALITY, "datatrove_gopher_quality"),
        (
            cdf.profiles.DCLM_QUALITY + cdf.profiles.DCLM_REPETITION,
            ["dclm_quality", "dclm_repetition"],
        ),
        (fineweb_2("fr"), {"fineweb_2": {"language": "fra_Latn", "words": "icu"}}),
        (
            DATATROVE_GOPHER_QUALITY.replace(stop_words=["a", "b"], hash_ratio=None),
            {
                "replace": {
                    "of": "datatrove_gopher_quality",
                    "gopher_too_many_hashes": None,
                    "stop_words": ["a", "b"],
                }
            },
        ),
    ],
)
def test_profiles_are_named_by_what_they_are_made_of(profile, wanted):
    assert recorded_recipe._plain("keep_profile", "profile", profile) == wanted


def test_a_model_of_presidio_is_the_call_that_makes_it():
    pipeline = SpacyPipeline("en_core_web_sm", "/models/en", "digest", 7, "en")
    finder = Presidio(("LOCATION", "PERSON"), pipeline, 0.4, ("presidio 2",))
    assert recorded_recipe._plain("redact_pii", "presidio", finder) == {
        "presidio": {"entities": ["LOCATION", "PERSON"], "model": "en_core_web_sm", "min_score": 0.4}
    }


def test_other_values_are_plain():
    plain = recorded_recipe._plain
    own = cdf.Profile("own", "1", "ours", (cdf.Rule("word_count", ">=", np.float64(2), "short"),))
    rule = {"metric": "word_count", "comparison": ">=", "threshold": 2.0, "reason": "short"}
    assert plain("keep_profile", "profile", own) == {
        "Profile": {"name": "own", "version": "1", "source": "ours", "rules": [{"Rule": rule}]}
    }
    assert plain("a", "n", (np.int64(7), {"b", "a"})) == [7, ["a", "b"]]
    assert plain("a", "memory", 1_500_000, "str | int") == "1500kB"
    assert plain("a", "left", 5, "int | str") == 5
    model = plain("add_class", "classifier", cdf.model("a/model", max_tokens=64))
    assert model == {"Model": {"model": "a/model", "max_tokens": 64}}
