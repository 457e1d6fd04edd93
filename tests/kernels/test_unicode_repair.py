# SPDX-License-Identifier: Apache-2.0
"""The repaired column against ftfy itself; above all, that no text is taken for unsuspicious that ftfy would change."""

import itertools

import ftfy
import pandas as pd
import pyarrow as pa
import pytest
from ftfy.badness import BADNESS_RE, MOJIBAKE_CATEGORIES, is_bad
from hypothesis import example, given, settings
from hypothesis import strategies as st

from curator_df.kernels.edits.mojibake import CLASS_MASK, CONTROL, suspect_tables
from curator_df.kernels.edits.unicode_repair import RepairSettings, ftfy_config, repair_texts
from tests.examples import examples

LISTED = sorted({character for character in BADNESS_RE.pattern if character > "\x7f"})
SETTINGS = st.builds(
    RepairSettings,
    form=st.sampled_from(["NFC", "NFD", "NFKC", "NFKD", None]),
    unescape_html=st.sampled_from(["auto", True, False]),
    fix_encoding=st.booleans(),
    fix_line_breaks=st.booleans(),
)
PIECES = st.one_of(
    st.sampled_from(
        ["&amp;", "&lt;", "&#x2019;", "&amp", "&nosuch;", "<", "\n", "\r\n", "\r", "\x1b[31m", "\x1b", "\x00", "\x0c"]
    ),
    st.sampled_from(
        [
            "e\u0301",
            "\u1100\u1161",
            "\u11a8",
            "ﬁ",
            "Ａ",
            "\u3000",
            "\u2028",
            "\x85",
            "\ufeff",
            "\ufffc",
            "\ufffd",
            "👍🏽",
        ]
    ),
    st.sampled_from(LISTED),
    st.sampled_from(list("aZ .,?19")),
    st.sampled_from(["“quoted”", "Größe", "naïve", "œuvre", "мир", "日本語", "שלום", "العربية", "voilà «ici»", "№ 5"]),
    st.text(max_size=3),
    st.text(max_size=3).map(lambda text: text.encode(errors="replace").decode("sloppy-windows-1252")),
)
TEXTS = st.lists(PIECES, max_size=12).map("".join)


DEFAULTS = RepairSettings()


def repaired(texts, settings=DEFAULTS, dtype="string[pyarrow]"):
    return repair_texts(pd.Series(texts, dtype=dtype), settings)


@settings(max_examples=examples(1500))
@given(st.lists(st.one_of(TEXTS, st.none()), max_size=4), SETTINGS)
@example(["<", "&amp;", "&lt;\n&amp;\n<\n&amp;", "Œ", "œ\n", "\n\n", "a\r", ""], RepairSettings())
def test_repair_equals_ftfy_on_any_text(texts, chosen):
    config = ftfy_config(chosen)
    expected = [None if text is None else ftfy.fix_text(text, config) for text in texts]
    series, rows_changed = repaired(texts, chosen)
    assert [None if text is pd.NA else text for text in series] == expected
    assert rows_changed == sum(before != after for before, after in zip(texts, expected, strict=True))


def suspected(tables, text):
    values = [tables.points[ord(character)] for character in text]
    classes = [1 if character.isalpha() else 2 if character == " " else 0 for character in text]
    classes = [
        value & CLASS_MASK if character > "\x7f" else ascii_class
        for character, value, ascii_class in zip(text, values, classes, strict=True)
    ]
    return any(value & CONTROL for value in values) or any(tables.pairs[pair] for pair in itertools.pairwise(classes))


def test_no_pair_or_triple_that_ftfy_calls_bad_is_missed():
    tables = suspect_tables(None)
    listed = [chr(code) for code in range(0x80, 0x20000) if tables.points[code] & CLASS_MASK] + ["ſ", "漢", "\x80", "ª"]
    ascii_ones = ["a", "Z", " ", ".", "\n", "1"]
    of_each_class = {tables.points[ord(character)]: character for character in listed}
    few = [*of_each_class.values(), *ascii_ones]
    texts = [f"{first}{second}" for first, second in itertools.product(listed + ascii_ones, repeat=2)]
    texts += [f"{first}{second}a" for first, second in itertools.product(listed, repeat=2)]
    texts += ["".join(triple) for triple in itertools.product(few, repeat=3)]
    assert len(texts) > 400_000
    assert [text for text in texts if is_bad(text) and not suspected(tables, text)] == []


def test_every_category_of_ftfy_is_read():
    assert set(MOJIBAKE_CATEGORIES) == {
        "common", "c1", "bad", "law", "currency", "start_punctuation", "end_punctuation", "numeric", "kaomoji",
        "upper_accented", "lower_accented", "upper_common", "lower_common", "box",
    }  # fmt: skip


def test_every_code_point_alone_and_after_a_letter_is_as_ftfy_has_it():
    codes = [code for code in range(0x40000) if not 0xD800 <= code < 0xE000]
    for form in ("NFC", "NFKC"):
        chosen = RepairSettings(form=form)
        config = ftfy_config(chosen)
        texts = ["".join(f"a{chr(code)}b" for code in codes[start : start + 32]) for start in range(0, len(codes), 32)]
        series, _ = repaired(texts, chosen)
        assert series.tolist() == [ftfy.fix_text(text, config) for text in texts]


def test_segments_of_long_lines_are_those_of_ftfy():
    text = "é" * 999_999 + "e\u0301" + "x" * 1_000_000 + "\n" + "cafÃ©\n"
    series, rows_changed = repaired([text, "y" * 1_000_001])
    assert (series[0], rows_changed) == (ftfy.fix_text(text, ftfy_config(RepairSettings())), 1)


@pytest.mark.parametrize(
    ("text", "fixed"),
    [
        ("plain text\twith tab\n", "plain text\twith tab\n"),
        ("cafÃ© &amp; “bar” ﬁn Ａ", "café & “bar” ﬁn Ａ"),
        ("<p> &amp;", "<p> &amp;"),
        ("a\r\nb\rc", "a\nb\nc"),
        ("\x1b[1mbold\x1b[0m\x00", "bold"),
        ("e\u0301", "é"),
    ],
)
def test_repair_of_a_text(text, fixed):
    assert repaired([text])[0].tolist() == [fixed]


def test_unchanged_column_is_the_same_object():
    texts = pd.Series(["a", None, "Größe 漢字 “x”"], dtype="string[pyarrow]")
    series, rows_changed = repair_texts(texts, RepairSettings())
    assert series is texts and rows_changed == 0


@pytest.mark.parametrize(
    "dtype", ["str", "string[pyarrow]", "string[python]", pd.ArrowDtype(pa.string()), pd.ArrowDtype(pa.large_string())]
)
def test_dtype_index_name_and_nulls_are_kept(dtype):
    texts = pd.Series(["cafÃ©", None, "b"], index=[7, 5, 3], dtype=dtype, name="body")
    series, _ = repair_texts(texts, RepairSettings())
    pd.testing.assert_series_equal(series, pd.Series(["café", None, "b"], index=[7, 5, 3], dtype=dtype, name="body"))


def test_chunks_slices_and_untouched_chunks():
    first = pa.array(["zz", "a\rb", None, "c", "zz"], pa.large_string()).slice(1, 3)
    chunked = pa.chunked_array([first, pa.array(["d", "e"], pa.large_string()), pa.array([], pa.large_string())])
    texts = pd.Series(pd.StringDtype("pyarrow").__from_arrow__(chunked), index=[2, 4, 6, 8, 10])
    series, rows_changed = repair_texts(texts, RepairSettings())
    assert series.fillna("null").to_dict() == {2: "a\nb", 4: "null", 6: "c", 8: "d", 10: "e"}
    assert rows_changed == 1
    held = series.array.__arrow_array__()
    assert held.chunk(1).buffers()[2].address == chunked.chunk(1).buffers()[2].address
