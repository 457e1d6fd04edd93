# SPDX-License-Identifier: Apache-2.0
"""FineWeb-2's filters for each language: their constants, files of users, and what they say of texts."""

import importlib.util
import json
from pathlib import Path

import dask.dataframe as dd
import pandas as pd
import pytest

import curator_df as cdf
from curator_df.errors import InputError, MissingExtraError, ParameterError
from curator_df.profiles import DATATROVE_GOPHER_QUALITY, fineweb_2

HELD = json.loads((Path(cdf.__file__).parent / "profiles" / "fineweb_2.json").read_text(encoding="utf-8"))
FRENCH = (
    "Il est arrivé hier soir dans la ville. Les enfants ont joué au bord de la rivière, et le chien a suivi leurs pas.\n"
    "Après un long voyage, une famille cherche du repos ; elle est reçue par des amis. La table est mise.\n"
    "On parle de tout, on rit beaucoup, puis chacun va dormir en silence pendant que la lune monte sur les toits.\n"
)
THAI = "ในปีนี้ประเทศไทยเป็นเจ้าภาพการประชุมของนักวิทยาศาสตร์และมีผู้เข้าร่วมที่ได้เดินทางมาจากหลายประเทศ\n"
MORE_THAI = "เด็กนักเรียนชอบอ่านหนังสือในห้องสมุดหลังเลิกเรียน แม่ซื้อผลไม้ที่ตลาดแล้วกลับบ้านตอนเย็น\n"


def table(profile):
    return [(rule.metric, rule.comparison, rule.threshold, rule.reason) for rule in profile.rules]


def test_french_is_the_chain_of_fineweb_2():
    profile = fineweb_2("fra_Latn")
    assert (profile.name, profile.version, profile.words) == ("fineweb_2 fra_Latn", "2", "icu")
    assert table(profile) == [
        ("duplicate_line_ratio", "<=", 0.264, "dup_line_frac"),
        ("top_2_gram_character_ratio", "<=", 0.161, "top_2_gram"),
        ("top_3_gram_character_ratio", "<=", 0.149, "top_3_gram"),
        ("top_4_gram_character_ratio", "<=", 0.134, "top_4_gram"),
        ("repeated_5_gram_character_ratio", "<=", 0.15, "duplicated_5_n_grams"),
        ("repeated_6_gram_character_ratio", "<=", 0.141, "duplicated_6_n_grams"),
        ("repeated_7_gram_character_ratio", "<=", 0.131, "duplicated_7_n_grams"),
        ("repeated_8_gram_character_ratio", "<=", 0.121, "duplicated_8_n_grams"),
        ("repeated_9_gram_character_ratio", "<=", 0.111, "duplicated_9_n_grams"),
        ("repeated_10_gram_character_ratio", "<=", 0.1, "duplicated_10_n_grams"),
        ("filled_line_count", ">=", 1, "empty"),
        ("terminal_line_ratio", ">=", 0.1, "line_punct_ratio"),
        ("duplicate_filled_line_character_ratio", "<=", 0.1, "char_dup_ratio"),
        ("line_feed_word_ratio", "<=", 0.185, "list_ratio"),
        ("non_symbol_word_count", ">=", 50, "gopher_short_doc"),
        ("non_symbol_word_count", "<=", 100_000, "gopher_long_doc"),
        ("non_symbol_word_mean_length", ">=", 2, "gopher_below_avg_threshold"),
        ("non_symbol_word_mean_length", "<=", 11, "gopher_above_avg_threshold"),
        ("hash_ratio", "<=", 0.1, "gopher_too_many_hashes"),
        ("ellipsis_ratio", "<=", 0.1, "gopher_too_many_ellipsis"),
        ("bullet_line_ratio", "<=", 0.9, "gopher_too_many_bullets"),
        ("ellipsis_line_ratio", "<=", 0.3, "gopher_too_many_end_ellipsis"),
        ("alpha_word_ratio", ">=", 0.812, "gopher_below_alpha_threshold"),
        ("stop_word_count", ">=", 2, "gopher_enough_stop_words"),
    ]
    assert profile.stop_words == tuple(HELD["fra_Latn"]["stopwords"])
    assert profile.stop_words[4:8] == ("à", "en", "l'", "des")
    assert "configs/fra_Latn.yml, commit 05e6729" in profile.rules[0].source
    assert profile.rules[14] in DATATROVE_GOPHER_QUALITY.rules


def test_thresholds_of_zero_take_their_rules_out():
    assert {"line_punct_ratio", "gopher_below_avg_threshold"}.isdisjoint(fineweb_2("deu_Latn").reasons)
    assert "list_ratio" in fineweb_2("deu_Latn").reasons


@pytest.mark.parametrize("language", HELD)
def test_every_language_here_is_a_profile_with_a_source(language):
    values, profile = HELD[language], fineweb_2(language)
    assert len(values["commit"]) == 40 and values["commit"] in profile.source
    assert [n for n, _ in values["top_n_grams"]] == [2, 3, 4]
    assert [n for n, _ in values["dup_n_grams"]] == [5, 6, 7, 8, 9, 10]
    assert all(0 <= rule.threshold <= 1 for rule in profile.rules if rule.metric.endswith("ratio"))
    assert 8 <= len(profile.stop_words) == len(values["stopwords"])


def test_a_language_that_is_not_here_comes_from_a_file(tmp_path):
    with pytest.raises(
        ParameterError,
        match=r"no thresholds of 'swh_Latn' are included\..* Use one of: arb",
    ):
        fineweb_2("swh_Latn")
    config = tmp_path / "fra_Latn.yml"
    config.write_text(json.dumps(HELD["fra_Latn"]))
    read = fineweb_2("fra_Latn", config=config, words="whitespace")
    assert (table(read), read.stop_words) == (table(fineweb_2("fra_Latn")), fineweb_2("fra_Latn").stop_words)
    assert read.rules[0].source == str(config)
    config.write_text("- 1")
    with pytest.raises(InputError, match=r"fra_Latn\.yml is not a configuration of FineWeb-2"):
        fineweb_2("fra_Latn", config=config)
    with pytest.raises(InputError, match="cannot be read"):
        fineweb_2("fra_Latn", config=tmp_path / "none.yml")


def test_stop_words_are_part_of_a_profile():
    profile = DATATROVE_GOPHER_QUALITY.replace(words="whitespace", stop_words=["de", "la"])
    assert (profile.stop_words, profile.version) == (("de", "la"), "0.10.0+modified")
    assert (
        profile
        + fineweb_2("fra_Latn", words="whitespace").replace(stop_word_count=None, **dict.fromkeys(profile.reasons[:-1]))
    ).stop_words == ("de", "la")
    with pytest.raises(ParameterError, match="have different stop words, but one pass over the text counts one list"):
        profile.replace(**dict.fromkeys(profile.reasons[:-1])) + DATATROVE_GOPHER_QUALITY.replace(
            words="whitespace", **dict.fromkeys(profile.reasons[:-1])
        )
    for odd in (["de", "de"], ["d e"], [""], []):
        with pytest.raises(ParameterError, match="must be distinct words without white space"):
            DATATROVE_GOPHER_QUALITY.replace(stop_words=odd)


def test_a_configuration_makes_no_objects(tmp_path):
    (tmp_path / "made.yml").write_text(f"stopwords: !!python/object/apply:os.mkdir ['{tmp_path}/made']\n")
    with pytest.raises(InputError, match="could not determine a constructor for the tag"):
        fineweb_2("swh_Latn", config=tmp_path / "made.yml")
    assert not (tmp_path / "made").exists()


def reasons(texts, profile):
    docs = dd.from_pandas(pd.DataFrame({"text": pd.array(texts, "string[pyarrow]")}), npartitions=1)
    found = docs.pipe(cdf.add_profile, profile, add_metrics=False).compute(scheduler="synchronous")["reason"]
    return [None if reason is pd.NA else reason for reason in found]


def test_french_between_white_space_is_judged_by_its_own_words():
    english = FRENCH.translate(str.maketrans("aeiou", "xzqwy"))
    profile = fineweb_2("fra_Latn", words="whitespace").replace(gopher_short_doc=20)
    assert reasons([FRENCH, english], profile) == [None, "gopher_enough_stop_words"]


@pytest.mark.skipif(importlib.util.find_spec("icu4py") is None, reason="needs icu4py: pip install 'curator-df[icu]'")
def test_thai_is_cut_into_words():
    profile = fineweb_2("tha_Thai").replace(gopher_short_doc=10)
    assert reasons([THAI + MORE_THAI], profile) == [None]
    assert reasons([THAI + MORE_THAI], profile.replace(words="whitespace")) != [None]


def test_words_by_icu_say_what_they_need(monkeypatch):
    docs = dd.from_pandas(pd.DataFrame({"text": ["a"]}), npartitions=1)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(MissingExtraError, match=r"pip install .*\[icu\]"):
        docs.pipe(cdf.keep_profile, fineweb_2("tha_Thai"))
    with pytest.raises(MissingExtraError, match="add_metrics with words='icu' needs"):
        docs.pipe(cdf.add_metrics, ["word_count"], words="icu")


def test_a_code_means_the_included_language():
    assert fineweb_2("de") == fineweb_2("DEU") == fineweb_2("deu_Latn")
    assert fineweb_2("zh") == fineweb_2("cmn_Hani")
    with pytest.raises(ParameterError, match="no thresholds of 'xx' are included"):
        fineweb_2("xx")
    for other in (None, 3):
        with pytest.raises(ParameterError, match=f"fineweb_2: language={other} must be a str"):
            fineweb_2(other)
    with pytest.raises(ParameterError, match="fineweb_2: words='spaces' is not one of 'icu', 'whitespace'"):
        fineweb_2("fr", words="spaces")
    with pytest.raises(ParameterError, match=r"words='datatrove' splits English only. Use words='icu', which"):
        fineweb_2("fr", words="datatrove")
