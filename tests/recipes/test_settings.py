# SPDX-License-Identifier: Apache-2.0
"""Settings that replace values of a recipe, from the command line and from Python."""

import pytest

import curator_df as cdf
from curator_df.errors import RecipeError
from curator_df.recipes.recipe import read_recipe
from curator_df.recipes.settings import typed_settings
from tests.core.runner.fake_client import inline_cluster

TEXT = """
read:
  jsonl: {paths: in}
steps:
- normalize_unicode
- keep_language: {languages: [en]}
- keep_profile: {profile: nemo_code}
- keep_profile: {profile: {fineweb_2: {language: de}}}
write: jsonl
"""


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "a.yaml"
    path.write_text(TEXT.replace("write: jsonl", "write: {jsonl: {path: out}}"))
    return path


def values(recipe):
    """Return the recipe with its settings as plain values."""

    def plain(value):
        data = value.data
        if isinstance(data, dict):
            return {name: plain(one) for name, one in data.items()}
        return [plain(one) for one in data] if isinstance(data, list) else data

    return plain(recipe._value)


@pytest.mark.parametrize(
    ("settings", "steps"),
    [
        ([], ["normalize_newlines"]),
        (["steps.keep_where.predicate=n > 3"], ["keep_where", "normalize_newlines"]),
        (["steps.redact_pii.kinds=[ip]"], ["redact_pii", "normalize_newlines"]),
        (["steps.keep_where=null"], ["normalize_newlines"]),
    ],
)
def test_an_optional_step_is_one_of_the_chain_if_a_setting_names_it(tmp_path, settings, steps):
    path = tmp_path / "a.yaml"
    optional = "- optional: {keep_where: {predicate: n > 2}}\n- optional: redact_pii\n"
    path.write_text(
        "read: {jsonl: {paths: in}}\nsteps:\n" + optional + "- normalize_newlines\nwrite: {jsonl: {path: o}}\n"
    )
    recipe = read_recipe(path, typed_settings(settings))
    assert [name for name, _, _ in recipe._steps()] == steps


def test_an_optional_step_is_checked_even_where_it_is_left_out(tmp_path):
    path = tmp_path / "a.yaml"
    path.write_text(
        "read: {jsonl: {paths: in}}\nsteps:\n- optional: {keep_were: {predicate: n > 2}}\nwrite: {jsonl: {path: o}}\n"
    )
    with pytest.raises(RecipeError, match=r"a.yaml:3: steps: found 'keep_were'.* Did you mean 'keep_where'"):
        cdf.load_recipe(path)


@pytest.mark.parametrize(
    ("setting", "place", "wanted"),
    [
        ("input=other/", ("read", "jsonl", "paths"), "other/"),
        ("input=[a, b]", ("read", "jsonl", "paths"), ["a", "b"]),
        ("output=7", ("write", "jsonl", "path"), 7),
        ("rejects=rej", ("write", "jsonl", "rejects"), "rej"),
        ("read=parquet", ("read", "parquet", "paths"), "in"),
        ("read.blocksize=8MB", ("read", "jsonl", "blocksize"), "8MB"),
        ("read.jsonl.add_source=true", ("read", "jsonl", "add_source"), True),
        ("write.compression=gzip", ("write", "jsonl", "compression"), "gzip"),
        ("memory=8GB", ("cluster", "memory"), "8GB"),
        ("cpus=2", ("cluster", "cpus"), 2),
        ("cluster.spill_limit=1GB", ("cluster", "spill_limit"), "1GB"),
        ("steps.normalize_unicode.form=NFKC", ("steps", 0, "normalize_unicode", "form"), "NFKC"),
        ("steps.keep_language.languages=no", ("steps", 1, "keep_language", "languages"), "no"),
        ("steps.keep_language.languages={en: 0.5}", ("steps", 1, "keep_language", "languages"), {"en": 0.5}),
        ("steps.keep_language.min_score=0.8", ("steps", 1, "keep_language", "min_score"), 0.8),
        ("steps.keep_profile.1.words=whitespace", ("steps", 2, "keep_profile", "words"), "whitespace"),
        (
            "steps.keep_profile.2.profile.fineweb_2.language=fr",
            ("steps", 3, "keep_profile", "profile", "fineweb_2", "language"),
            "fr",
        ),
        ("steps.normalize_unicode=null", ("steps", 0, "keep_language", "languages"), ["en"]),
    ],
)
def test_a_setting_replaces_one_value(path, setting, place, wanted):
    found = values(read_recipe(path, typed_settings([setting])))
    for part in place:
        found = found[part]
    assert found == wanted


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ("memory", r"a setting is NAME=VALUE, such as --set memory=8GB"),
        ("=8", r"a setting is NAME=VALUE"),
        ("memry=8GB", r"^--set memry=8GB: there is no setting 'memry'\. Did you mean 'memory'\?"),
        ("about.source=x", r"there is no setting 'about\.source'"),
        ("memory=8", r"cluster\.memory: found the number 8, .* Write memory: 8GB"),
        ("memory.x=8", r"found a mapping|nothing below it can be set|there is no setting"),
        ("read=parqet", r"Did you mean 'parquet'"),
        ("read.parquet.paths=x", r"the recipe has read: jsonl, not parquet"),
        (
            "read.path=x",
            r"^--set read\.path=x: read\.jsonl\.path: read_jsonl has no parameter 'path'\. Did you mean 'paths'",
        ),
        ("steps.keep_langage.top=1", r"the recipe has no step 'keep_langage'\. Did you mean 'keep_language'"),
        ("steps.remove_html.x=1", r"no step 'remove_html'\. Its steps are: normalize_unicode, keep_language"),
        (
            "steps.keep_profile.words=icu",
            r"the recipe has 2 steps keep_profile\. Name one of them: steps\.keep_profile\.1",
        ),
        (
            "steps.keep_profile.3.words=icu",
            r"the recipe has 2 steps keep_profile, and no number 3\. Use a number from 1 to 2",
        ),
        ("steps.keep_language.min_score=high", r"^--set .*: steps\.keep_language\.min_score: found the text 'high'"),
        ("steps.keep_language.languages.x.y=1", r"is not a mapping, so nothing below it can be set"),
        ("input=[a", r"^--set input=\[a:1: not valid YAML"),
    ],
)
def test_a_setting_that_does_not_fit_is_refused(path, setting, said):
    with pytest.raises(RecipeError, match=said):
        read_recipe(path, typed_settings([setting]))


@pytest.mark.parametrize(
    ("settings", "left"),
    [
        (["steps.keep_profile.1=null", "steps.keep_profile.2.words=icu"], [{"fineweb_2": {"language": "de"}}, "icu"]),
        (["steps.keep_profile.2.words=icu", "steps.keep_profile.1=null"], [{"fineweb_2": {"language": "de"}}, "icu"]),
        (["steps.keep_profile.1=null", "steps.keep_profile.words=icu"], [{"fineweb_2": {"language": "de"}}, "icu"]),
        (["steps.keep_profile.2=null", "steps.keep_profile.1.words=icu"], ["nemo_code", "icu"]),
    ],
)
def test_numbers_are_those_of_the_steps_in_the_file(path, settings, left):
    steps = values(read_recipe(path, typed_settings(settings)))["steps"]
    assert [list(step["keep_profile"].values()) for step in steps if "keep_profile" in step] == [left]


def test_steps_can_all_be_left_out_by_their_numbers(path):
    steps = {"keep_profile": {"1": None, "2": None}, "normalize_unicode": None}
    assert values(cdf.load_recipe(path, steps=steps))["steps"] == [{"keep_language": {"languages": ["en"]}}]


def test_a_step_that_another_setting_leaves_out_cannot_be_set(path):
    settings = typed_settings(["steps.keep_profile.1=null", "steps.keep_profile.1.words=icu"])
    with pytest.raises(RecipeError, match=r"--set steps\.keep_profile\.1=null leaves this step of keep_profile out"):
        read_recipe(path, settings)


def test_a_typed_number_is_text_where_text_is_wanted(path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "7").write_text('{"text": "a"}\n')
    settings = ["input=7", "output=8", "steps.keep_language=null", "steps.keep_profile.2=null"]
    recipe = read_recipe(path, typed_settings([*settings, "steps.keep_profile.1.text=text"]))
    with inline_cluster():
        assert recipe.run().output == str(tmp_path / "8")


def test_settings_from_python_are_values(path):
    recipe = cdf.load_recipe(
        path,
        input=["a", "b"],
        memory="2GB",
        read={"blocksize": "1MB"},
        steps={"keep_language": {"min_score": 0.7}, "keep_profile": {"1": {"words": "icu"}, "2": None}},
        **{"write.compression": "zstd"},
    )
    found = values(recipe)
    assert found["read"]["jsonl"] == {"paths": ["a", "b"], "blocksize": "1MB"}
    assert found["cluster"] == {"memory": "2GB"}
    assert found["steps"][1]["keep_language"] == {"languages": ["en"], "min_score": 0.7}
    assert found["steps"][2:] == [{"keep_profile": {"profile": "nemo_code", "words": "icu"}}]
    assert found["write"]["jsonl"]["compression"] == "zstd"


def test_objects_from_python_are_taken_where_a_file_has_their_makers(path, tmp_path):
    (tmp_path / "in.jsonl").write_text('{"text": "a"}\n')
    profile = cdf.profiles.NEMO_ENGLISH.replace(word_count_min=5)
    steps = {"keep_language": None, "keep_profile": {"2": {"profile": profile}}}
    table = cdf.load_recipe(path, input=tmp_path / "in.jsonl", steps=steps).table()
    assert any(profile in getattr(operand, "parameters", {}).values() for operand in _operands(table))


def _operands(table):
    return [operand for node in table.expr.walk() for operand in node.operands]


def test_a_setting_of_the_wrong_type_names_the_argument(path):
    with pytest.raises(RecipeError, match=r"^load_recipe\(cpus=\): cluster\.cpus: found the text 'two'"):
        cdf.load_recipe(path, cpus="two")
    with pytest.raises(
        RecipeError, match=r"load_recipe\(inputs=\): there is no setting 'inputs'\. Did you mean 'input'"
    ):
        cdf.load_recipe(path, inputs="a")
    with pytest.raises(RecipeError, match=r"found a function, but languages is text"):
        cdf.load_recipe(path, steps={"keep_language": {"languages": lambda: None}})
