# SPDX-License-Identifier: Apache-2.0
"""Recipes: what is wrong in one is said with line and key, and what is right gives the run of the chain in Python."""

import json
import shutil

import pandas as pd
import pyarrow.parquet as pq
import pytest

import curator_df as cdf
from curator_df.errors import BudgetError, InputError, OutputExistsError, ParameterError, RecipeError
from tests.contracts.operator_cases import fingerprints_of
from tests.core.runner.fake_client import inline_cluster

READ, WRITE = "read: {jsonl: {paths: in.jsonl}}", "write: {parquet: {path: out}}"


@pytest.fixture(autouse=True)
def _here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows = [{"n": number, "language": "en", "text": f"text {number % 7}"} for number in range(30)]
    (tmp_path / "in.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


def load(text, path="a.yaml", **settings):
    with open(path, "w") as file:
        file.write(text)
    return cdf.load_recipe(path, **settings)


def step(text):
    return f"{READ}\nsteps:\n- {text}\n{WRITE}\n"


@pytest.mark.parametrize(
    ("text", "line", "key", "said"),
    [
        ("read:\n  parquett: {paths: in}\n", 2, "read", r"no such name for a reader\. Did you mean 'parquet'\?"),
        ("read:\n  read_parquet: {paths: in}\n", 2, "read", "found 'read_parquet'. Write 'parquet'"),
        ("read: {parquet: {path: in}}\n", 1, "read.parquet.path", r"has no parameter 'path'\. Did you mean 'paths'\?"),
        ("read: {parquet: {paths: 7}}\n", 1, "read.parquet.paths", r'found the number 7, but .* write paths: "7"'),
        ("read: {parquet: {paths: }}\n", 1, "read.parquet.paths", "found no value, but paths is text"),
        ("read: parquet\n", 1, "read.parquet", r"read_parquet needs paths: \(text\)|needs paths: \(text"),
        ("read: [parquet]\n", 1, "read", "found a list, but a reader is a name with its parameters"),
        ("read: {parquet: {paths: a, dtype: {1: string}}}", 1, "read.parquet.dtype", 'Write "1": in quotes'),
        ("reads: {parquet: {paths: in}}\n", 1, "reads", r"no key 'reads'\. Did you mean 'read'\?"),
        (f"{READ}\nwrite_parquet: {{path: out}}\n", 2, "write_parquet", r"Write write: \{parquet: \.\.\.\}"),
        (f"{READ}\nkeep_where: {{predicate: a}}\n", 2, "keep_where", "Write it as an item of steps"),
        (f"{WRITE}\n", 1, "", r"there is no read:\. Write read: \{parquet: \{paths: in/\}\}"),
        (f"{READ}\n", 1, "", r"there is no write:\. Write write: "),
        (f"{READ}\nsteps: {{keep_where: {{predicate: a}}}}\n{WRITE}", 2, "steps", "steps: is a list. Begin each step"),
        (step("normalize_unicod"), 3, "steps", r"no such name for a step\. Did you mean 'normalize_unicode'\?"),
        (step("keep_where"), 3, "steps.keep_where", r"keep_where needs predicate: \(text\)"),
        (step("keep_where: n > 1"), 3, "steps.keep_where", r"Write keep_where: \{predicate: \.\.\.\}"),
        (step("keep_where:\n  predicate: n > 1"), 3, "steps", "one name with its parameters below it. Indent"),
        (step("write_parquet: {path: x}\n- remove_html"), 3, "steps", r"a writer, not a step\. .* write: \{parquet"),
        (step("read_warc: {paths: x}"), 3, "steps", "a reader, not a step. Move it out of steps: to read:"),
        (step("describe_drops: {profile: nemo_code}"), 3, "steps", "this function is not a step"),
        (
            step("keep_language: {languages: no}"),
            3,
            "steps.keep_language.languages",
            'Write "no" for the text, or false',
        ),
        (step("keep_language: {languages: [en, no]}"), 3, "steps.keep_language.languages[2]", 'Write "no"'),
        (step("keep_language: {languages: {no: 0.5}}"), 3, "steps[1].keep_language.languages", 'the key no: .*"no"'),
        (step("remove_html: {main_content: on}"), 3, "steps.remove_html.main_content", "or true"),
        (
            step("keep_language:\n    languages: en\n    min_score: high"),
            5,
            "steps.keep_language.min_score",
            r"found the text 'high', but min_score is a number or null\. Write for example min_score: 0\.5",
        ),
        (step("keep_language: {languages: {en: high}}"), 3, "steps.keep_language.languages.en", "but en is a number"),
        (step("sample_rows: {fraction: '0.5'}"), 3, "steps.sample_rows.fraction", "Write fraction: 0.5 without quotes"),
        (step("sample_rows: {fraction: 0.5, seed: 1.5}"), 3, "steps.sample_rows.seed", "seed is a whole number"),
        (
            step("sample_rows: {fraction: 0.5, seed: true}"),
            3,
            "steps.sample_rows.seed",
            "found true, but seed is a whole",
        ),
        (step("sample_rows: {fraction: 0.5, seed: 010}"), 3, "steps.sample_rows.seed", "or plain digits"),
        (step("remove_lines: {lines: a}"), 3, "steps.remove_lines.lines", r"Write lines: \[a\]"),
        (step("remove_lines: {lines: [a, 7]}"), 3, "steps.remove_lines.lines[2]", 'write lines: "7"'),
        (step("keep_profile: {profile: gofer}"), 3, "steps.keep_profile.profile", "Did you mean"),
        (step("keep_profile: {profile: [nemo_code, x]}"), 3, "steps.keep_profile.profile[2]", "found the text 'x'"),
        (
            step("keep_profile: {profile: {fineweb_2: {lang: de}}}"),
            3,
            "steps.keep_profile.profile.fineweb_2.lang",
            "'language'",
        ),
        (
            step("keep_profile: {profile: {replace: {a: 1}}}"),
            3,
            "steps.keep_profile.profile.replace",
            "replace needs of:",
        ),
        (step("add_metrics: {metrics: {UserMetric: {}}}"), 3, "steps.add_metrics.metrics", "cannot hold a UserMetric"),
        (
            step("drop_near_duplicates: {scheme: {Scheme: {ngrams: words}}}"),
            3,
            "steps.drop_near_duplicates.scheme.Scheme",
            r"Scheme needs ngram_size: \(a whole number\) and num_bands",
        ),
        (
            step("drop_near_duplicates: {against: {read: {parquet: {pat: in}}}}"),
            3,
            "steps.drop_near_duplicates.against.read.parquet.pat",
            "Did you mean 'paths'",
        ),
        (step("drop_near_duplicates: {against: {steps: []}}"), 3, "steps.drop_near_duplicates.against", "no read:"),
        (
            step("join_documents: {max_document_size: 4000}"),
            3,
            "steps.join_documents.max_document_size",
            "4000B is 4000",
        ),
        (
            step("split_rows: {parts: {a: 0.5}}\n- remove_html"),
            4,
            "steps.remove_html",
            "after split_rows, .* last step",
        ),
        (step("split_rows: {parts: {a: 0.5}}"), 4, "write.parquet", "split_rows makes several tables"),
        (f"{READ}\nwrite: {{many: {{tables: {{o: a}}}}}}", 2, "write.many", "the tables of split_rows, which must be"),
        (
            f"{READ}\nsteps:\n- split_rows: {{parts: {{train: 0.5}}}}\nwrite: {{many: {{tables: {{out: tran}}}}}}",
            4,
            "write.many.tables.out",
            r"not a part of split_rows\. Did you mean 'train'\?",
        ),
        (
            f"{READ}\nsteps:\n- split_rows: {{parts: {{train: 0.5}}}}\nwrite: {{many: {{format: jsonl}}}}",
            4,
            "write.many.tables",
            r"many needs tables: \{folder: part\}, with the parts train",
        ),
        (
            f"{READ}\nwrite: {{parquet: {{path: out, on_existing: resum}}}}",
            2,
            "write.parquet.on_existing",
            r"Did you mean 'resume'\?",
        ),
        (f"{READ}\n{WRITE}\ncluster: {{memory: 8}}", 3, "cluster.memory", "Write memory: 8GB or 8MB; 8B is 8 bytes"),
        (f"{READ}\n{WRITE}\ncluster: {{memory: lots}}", 3, "cluster.memory", "a size with its unit, such as 8GB"),
        (f"{READ}\n{WRITE}\ncluster: {{memori: 8GB}}", 3, "cluster.memori", "Did you mean 'memory'"),
        (
            f"{READ}\n{WRITE}\ncluster: 8GB",
            3,
            "cluster",
            r"takes a mapping of parameters\. Write start_cluster: \{memory",
        ),
        (f"about: {{sources: a}}\n{READ}\n{WRITE}", 1, "about.sources", r"Did you mean 'source'\?"),
        (f"about: {{source: 7}}\n{READ}\n{WRITE}", 1, "about.source", "source is text, or a list of texts"),
        ("- read\n", 1, "", "found a list, but a recipe is a mapping"),
    ],
)
def test_what_is_wrong_is_said_with_line_and_key(text, line, key, said):
    with pytest.raises(RecipeError, match=said) as raised:
        load(text)
    assert (raised.value.path, raised.value.line) == ("a.yaml", line)
    assert raised.value.key == key or key.startswith("steps[1]")
    assert str(raised.value).startswith(f"a.yaml:{line}: ")


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"read: \xff\n", r"^a\.yaml:1: byte 0xff is not UTF-8\. Save the file as UTF-8"),
        (b"a: 1\nb: \xe4\n", r"^a\.yaml:2: byte 0xe4"),
        ("read: a".encode("utf-16"), r"^a\.yaml:1: byte 0xff"),
    ],
)
def test_files_that_are_not_utf_8_are_refused(tmp_path, content, said):
    (tmp_path / "a.yaml").write_bytes(content)
    with pytest.raises(RecipeError, match=said):
        cdf.load_recipe("a.yaml")


def test_a_byte_order_mark_is_allowed(tmp_path):
    (tmp_path / "a.yaml").write_bytes(f"\ufeff{READ}\n{WRITE}\n".encode())
    assert repr(cdf.load_recipe(tmp_path / "a.yaml")).endswith("a.yaml: read jsonl, write parquet")


def test_names_without_a_recipe_are_refused(tmp_path):
    with pytest.raises(RecipeError, match=r"no shipped recipe of this name\. Did you mean 'fineweb'\?"):
        cdf.load_recipe("finweb")
    with pytest.raises(RecipeError, match="cannot be read: Is a directory"):
        cdf.load_recipe(tmp_path)
    with pytest.raises(RecipeError, match="neither the path of a recipe"):
        cdf.load_recipe(b"fineweb")


def test_a_file_of_the_name_of_a_shipped_recipe_comes_first(tmp_path):
    assert cdf.load_recipe("dedup").about["reproduces"].startswith("exact and near")
    load(f"about: ours\n{READ}\n{WRITE}", "dedup")
    assert cdf.load_recipe("dedup").about == {"reproduces": "ours"}


def test_errors_of_calls_have_the_line_of_the_step():
    recipe = load(step("keep_where: {predicate: missing > 3}"))
    with pytest.raises(RecipeError, match=r"^a\.yaml:3: steps\.keep_where: .*missing") as raised:
        recipe.table()
    assert raised.value.__cause__ is not None
    with pytest.raises(RecipeError, match=r"^a\.yaml:3: steps\.sample_rows: .*fraction"):
        load(step("sample_rows: {fraction: 7}")).table()
    with pytest.raises(InputError, match="does not exist"):
        load(f"read: {{jsonl: {{paths: missing.jsonl}}}}\n{WRITE}").table()


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("sample_rows:\n    seed: 3\n    by: address\n    fraction: 7", 6),
        ("sample_rows:\n\n    # a comment\n    seed: 3\n    fraction: 7", 7),
        ("keep_where:\n    reason: 'n > 3'\n    predicate: missing > 3", 5),
        ("normalize_unicode:\n    form: NFC\n    text: txet", 5),
        ("add_language:\n    into: language", 4),
        ("normalize_whitespace:\n    text: n", 4),
    ],
)
def test_errors_of_calls_have_the_line_of_the_wrong_parameter(text, line):
    with pytest.raises(RecipeError) as raised:
        load(step(text)).table()
    assert raised.value.line == line


def test_errors_that_name_no_parameter_have_the_line_of_the_step():
    with pytest.raises(RecipeError, match="add_ids would overwrite 'id'") as raised:
        load(step("add_ids:\n\n    dense: true\n- add_ids:\n\n    dense: true")).table()
    assert raised.value.line == 6


def test_a_wrong_value_of_a_setting_names_the_setting():
    recipe = load(step("sample_rows:\n    fraction: 0.5"), steps={"sample_rows": {"fraction": 7}})
    with pytest.raises(RecipeError, match=r"^load_recipe\(steps\.sample_rows\.fraction=\): steps\.sample_rows: "):
        recipe.table()


def test_on_existing_without_a_writer_is_refused():
    recipe = load(f"{READ}\nsteps:\n- checkpoint: {{path: kept}}\n")
    said = r"on_existing='overwrite' is an option of the writer, but the recipe a\.yaml has no section write\..*'checkpoint'"
    with inline_cluster():
        with pytest.raises(ParameterError, match=said):
            recipe.run(on_existing="overwrite")
        assert recipe.run().rows_written == 30
        again = load(
            f"{READ}\nsteps:\n- checkpoint: {{path: kept}}\n", steps={"checkpoint": {"on_existing": "overwrite"}}
        )
        assert again.run().rows_written == 30


def test_an_optional_step_does_not_take_the_place_of_a_writer():
    text = f"{READ}\nsteps:\n- keep_where: {{predicate: n < 9}}\n- optional: {{checkpoint: {{path: kept}}}}\n"
    with pytest.raises(RecipeError, match=r"there is no write:"):
        load(text)
    assert "checkpoint" in repr(load(text, **{"steps.checkpoint.path": "kept"}))
    parts = "optional: {split_rows: {parts: {train: 0.8, test: 0.2}}}"
    with pytest.raises(RecipeError, match=r"many writes the tables of split_rows, which must be the last step"):
        load(f"{READ}\nsteps:\n- {parts}\nwrite: {{many: {{tables: {{a: train}}}}}}\n")
    assert "write parquet" in repr(load(f"{READ}\nsteps:\n- {parts}\n{WRITE}"))


STEPS = """
read:
  jsonl: {paths: in.jsonl}
steps:
- normalize_unicode
- keep_where: {predicate: n > 3}
- keep_profile: {profile: [dclm_quality, {replace: {of: dclm_repetition, repetition_line: null}}], add_metrics: true}
- drop_exact_duplicates: {keep: {best: {column: "n", which: max}}}
write:
  parquet: {path: out, rejects: rejects, compression: snappy}
cluster: {memory: 2GB, cpus: 1}
"""


def test_a_recipe_is_the_chain_of_the_same_calls():
    docs = cdf.read_jsonl("in.jsonl").pipe(cdf.normalize_unicode).pipe(cdf.keep_where, "n > 3")
    profile = cdf.profiles.DCLM_QUALITY + cdf.profiles.DCLM_REPETITION.replace(repetition_line=None)
    docs = docs.pipe(cdf.keep_profile, profile, add_metrics=True)
    docs = docs.pipe(cdf.drop_exact_duplicates, keep=cdf.best("n"))
    table = load(STEPS).table()
    assert fingerprints_of(table) == fingerprints_of(docs)
    assert table.expr._name == docs.expr._name


def test_a_recipe_runs_on_its_own_cluster_and_is_resumed():
    recipe = load(STEPS, steps={"keep_profile": None})
    receipt = recipe.run()
    assert (receipt.rows_read, receipt.rows_written, receipt.allowed_bytes) == (30, 7, 2_000_000_000)
    assert pq.ParquetFile("out/part-000000-000.parquet").metadata.row_group(0).column(0).compression == "SNAPPY"
    assert sorted(pd.read_parquet("out").n) == list(range(23, 30))
    assert len(pd.read_parquet("rejects")) == 23
    with inline_cluster("2GB", 2):
        with pytest.raises(OutputExistsError):
            recipe.run()
        assert recipe.run(on_existing="resume").started == receipt.started


def test_a_running_cluster_is_used():
    with inline_cluster(memory="3GB"):
        receipt = load(STEPS, steps={"keep_profile": None}).run()
    assert receipt.allowed_bytes == 3_000_000_000


def test_a_plan_is_shown_for_the_budget_of_the_recipe(raise_if_dask_computes):
    with raise_if_dask_computes():
        said = str(load(STEPS).explain())
        assert "2.00 GB budget: it fits" in said
        assert "drop_exact_duplicates" in said
        in_threads = load(STEPS, cluster={"processes": False}).explain()
        assert "threads of this process" in str(in_threads)
        assert "worker process" not in str(in_threads)
        assert "worker process" in str(load(STEPS).explain())
        with pytest.raises(BudgetError):
            load(STEPS, memory="300MB").explain()


def test_parts_are_written_to_their_folders():
    text = f"{READ}\nsteps:\n- split_rows: {{parts: {{train: 0.8, test: 0.2}}}}\n"
    recipe = load(text + "write: {many: {tables: {out/a: train, out/b: test}, format: jsonl}}\n")
    assert sorted(recipe.table()) == ["test", "train"]
    with inline_cluster():
        plan = str(recipe.explain())
        receipts = recipe.run()
        with pytest.raises(OutputExistsError, match="already contains a complete run"):
            recipe.explain()
        assert "it fits" in str(recipe.explain(on_existing="resume"))
    assert list(receipts) == ["out/a", "out/b"]
    assert sum(receipt.rows_written for receipt in receipts.values()) == 30
    assert receipts["out/a"].rows_written > receipts["out/b"].rows_written
    assert "it fits" in plan


def test_a_recipe_may_end_in_a_step_that_runs():
    recipe = load(f"{READ}\nsteps:\n- keep_where: {{predicate: n < 9}}\n- checkpoint: {{path: kept}}\n")
    with inline_cluster():
        plan = str(recipe.explain())
        assert recipe.run().rows_written == 9
        more = load(f"{READ}\nsteps:\n- checkpoint: {{path: all}}\n- keep_where: {{predicate: n < 9}}\n{WRITE}")
        assert "after checkpoint" in str(more.explain())
        assert more.run().rows_read == 30
        assert cdf.read_receipt("all").rows_written == 30
    assert "it fits" in plan


def test_a_table_in_a_step_is_read_from_its_own_files(tmp_path):
    with inline_cluster():
        load(
            f"{READ}\nsteps:\n- keep_where: {{predicate: n < 5}}\n- add_minhash\nwrite: {{parquet: {{path: known}}}}"
        ).run()
    text = step(
        "add_minhash\n- drop_near_duplicates: {signatures: minhash, against: {read: {parquet: {paths: known}}}}"
    )
    with inline_cluster():
        known = cdf.read_parquet("known")
        docs = cdf.read_jsonl("in.jsonl").pipe(cdf.add_minhash)
        docs = docs.pipe(cdf.drop_near_duplicates, signatures="minhash", against=known)
        wanted = cdf.write_parquet(docs, "by_hand").rows_written
        assert load(text).run().rows_written == wanted < 30
    shutil.rmtree(tmp_path / "known")


def test_readers_may_have_tables_of_their_own():
    tables = (
        "{a: {read: {jsonl: {paths: in.jsonl}}}, b: {read: {jsonl: {paths: in.jsonl}}, steps: [normalize_unicode]}}"
    )
    recipe = load(f"read: {{blend: {{tables: {tables}, path: mixed, epochs: {{a: 1, b: 1}}}}}}\n{WRITE}")
    with inline_cluster():
        plan = str(recipe.explain())
        assert recipe.run().rows_read == 60
    assert "after blend" in plan


def test_arguments_of_writers_that_do_not_fit_have_their_line():
    with inline_cluster(), pytest.raises(RecipeError, match=r"^a\.yaml:2: write\.parquet: .*rejects") as raised:
        load(f"{READ}\nwrite: {{parquet: {{path: out, rejects: out/rejects}}}}").run()
    assert isinstance(raised.value.__cause__, ParameterError)


def test_what_a_recipe_says_of_itself_is_kept():
    recipe = load(f"about: {{reproduces: this, missing: [a, b]}}\n{READ}\n{WRITE}")
    assert recipe.about == {"reproduces": "this", "missing": ["a", "b"]}
    with pytest.raises(AttributeError, match="Did you mean 'table'"):
        _ = recipe.tabel
