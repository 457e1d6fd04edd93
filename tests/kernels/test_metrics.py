# SPDX-License-Identifier: Apache-2.0
"""The compiled metrics against a plain Python reference, over arbitrary text."""

import math

import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from curator_df.errors import ParameterError
from curator_df.kernels.metrics.catalog import METRICS, require_metrics
from curator_df.kernels.metrics.counts import COUNTS, STOP_WORDS
from curator_df.kernels.metrics.measure import MEASURED_ROWS, measure
from curator_df.kernels.metrics.words.word_metrics import WORD_METRICS
from tests.examples import examples
from tests.kernels.plain_metrics import plain_metrics

ODD = "\t\n\r\x0b\x0c\x1c\x1d\x1e\x1f\x85\xa0\u1680\u2003\u2028\u2029\u202f\u3000\u200b\ufeff"
PIECES = st.one_of(
    st.sampled_from(
        [*STOP_WORDS, "The", "the,", "...", "....", "......", "…", "#", "##", "-", "•", "* ", "\r\n", " ", "\n", "\n\n"]
    ),
    st.sampled_from(
        [
            "http://",
            "https://a.b/c?d#e",
            "h",
            "(...)",
            "[…]",
            "-»",
            "Read More..",
            "read more",
            "○",
            "#a#",
            "{",
            "\b",
            "7",
        ]
    ),
    st.sampled_from(
        [
            "Privacy Policy",
            "use of coo\u212aies",
            "uses cookies",
            "privacy & cookies policy",
            "Lorem IPSUM",
            "COOKIE",
            " ",
            "Ⅷ",
            "JavaScript",
            "<?xml version=",
            "é" * 84,
            "lorem\0ipsum",
        ]
    ),
    st.sampled_from(
        [*ODD, "e\u0301", "👩‍👩‍👧", "שלום", "العربية", "漢字", "１", "€", "ﬁ", "𝒜", "\U00011f43", "ß", "..", "."]
    ),
    st.sampled_from([*"'’:,;\"_1²אア", "a'b", "\u05f4", "\u0308", "\u200d", "❤", "ℹ", ". . .", "THAT", "●", "\0"]),
    st.text(max_size=4),
)
TEXTS = st.lists(PIECES, max_size=30).map("".join)


def measured(texts: list[str | None], names: list[str] | None = None, dtype: object = "string[pyarrow]") -> list[dict]:
    rows = []
    for span in measure(pd.Series(texts, dtype=dtype), names or list(METRICS)):
        rows += [{name: values[row].item() for name, values in span.values.items()} for row in range(span.rows)]
    return rows


@settings(max_examples=examples(400))
@given(st.lists(TEXTS, max_size=4))
@example(["", " ", "\r\n", "\n\r", "a\r", "a\r\r\nb", "...\u2028", "x…\x85", "- a\n•b", "\x1f-", "a" * 70_000])
@example(["the\0", "to\0\0 be\0 of", "\0the a\0t"])
def test_metrics_equal_plain_python_on_any_text(texts):
    assert measured(texts) == [plain_metrics(text) for text in texts]


@settings(max_examples=examples(100))
@given(TEXTS)
def test_each_metric_alone_is_the_same_as_all_together(text):
    assert [measured([text], [name])[0][name] for name in METRICS] == list(measured([text])[0].values())


@pytest.mark.slow
def test_every_code_point_is_classed_as_python_does():
    """Every one of the planes in use; of the others, where all are alike, 64 in 1,024."""
    starts = [*range(0, 0x32400, 64), *range(0x32400, 0xE0000, 1024), *range(0xE0000, 0xE0400, 64)]
    texts = [
        "".join(chr(code) for code in range(start, start + 64) if not 0xD800 <= code < 0xE000)
        for start in [*starts, *range(0xE0400, 0x110000, 1024)]
    ]
    spaced = [" ".join(text) for text in texts]
    assert measured(texts) == [plain_metrics(text) for text in texts]
    assert measured(spaced) == [plain_metrics(text) for text in spaced]


@pytest.mark.parametrize(
    ("text", "metric", "value"),
    [
        ("to be, or not to be", "stop_word_count", 2),
        ("a # ## b", "hash_ratio", 0.75),
        ("wait..... what…", "ellipsis_ratio", 1.0),
        ("- a\n• b\n* c\n d", "bullet_line_ratio", 0.5),
        ("more... \nend…\nno", "ellipsis_line_ratio", 2 / 3),
        ("漢字 123 --", "alpha_word_ratio", 1 / 3),
        ("-- … a €", "non_symbol_word_count", 2),
        ("e\u0301te\u0301 x", "non_symbol_word_mean_length", 3.0),
        ("A Heading\n\nOne sentence, e.g. this one.\nAnother one! ...", "sentence_count", 2),
        (". . .", "sentence_count", 1),
    ],
)
def test_metric_of_a_text(text, metric, value):
    assert math.isclose(measured([text])[0][metric], value)


@pytest.mark.parametrize("words", ["whitespace", "datatrove"])
def test_a_text_without_words_has_no_sentence(words):
    texts = pd.Series(["", " \n\t\u3000", "\x1f", "One.\n Two. \n", None], dtype="string[pyarrow]")
    [span] = measure(texts, ["sentence_count"], words=words)
    assert span.values["sentence_count"].tolist() == [0, 0, 0, 2, 0]


@pytest.mark.parametrize("text", ["", " \t\u3000", "\x1f"])
def test_texts_without_words_have_zero_for_every_metric_of_words(text):
    assert set(measured([text], [metric.name for metric in WORD_METRICS])[0].values()) == {0}


@pytest.mark.parametrize(
    "dtype",
    ["str", "string[pyarrow]", "string[python]", pd.ArrowDtype(pa.string()), pd.ArrowDtype(pa.large_string()), object],
)
def test_every_text_dtype_gives_the_same(dtype):
    assert measured(["the end…", "é"], dtype=dtype) == [plain_metrics("the end…"), plain_metrics("é")]


def test_null_rows_are_marked_and_many_rows_come_in_order():
    texts = pd.Series(["a b", None] * 5000, dtype="string[pyarrow]")
    spans = list(measure(texts, ["word_count"]))
    assert [span.first_row for span in spans] == list(range(0, 10_000, MEASURED_ROWS))
    assert sum(span.values["word_count"][span.valid].sum() for span in spans) == 10_000
    assert sum(int((~span.valid).sum()) for span in spans) == 5000


def test_damaged_utf8_never_reads_past_a_text():
    offsets = pa.py_buffer(b"".join(number.to_bytes(8, "little") for number in (0, 1, 3)))
    array = pa.LargeStringArray.from_buffers(2, offsets, pa.py_buffer(b"\xe2\xf0\x9f"))
    texts = pd.Series(pd.StringDtype("pyarrow").__from_arrow__(pa.chunked_array([array])))
    [span] = measure(texts, ["word_count"])
    assert span.values["word_count"].tolist() == [1, 1]


def test_catalogue_is_complete():
    for name, metric in METRICS.items():
        assert metric.name == name
        assert metric.numerator in COUNTS and metric.denominator in (None, *COUNTS)
        assert metric.dtype == ("Int64" if metric.denominator is None else "Float64")
        assert metric.definition.endswith(".") and metric.source and metric.edge_cases


def test_unknown_names_are_answered_with_the_nearest():
    with pytest.raises(ParameterError, match=r"unknown metric 'words_count'\. Did you mean 'word_count'\?") as caught:
        list(measure(pd.Series(["a"], dtype="string[pyarrow]"), ["words_count"]))
    assert len(str(caught.value)) < 300
    with pytest.raises(
        ParameterError, match=r"'zzz'\. All 1[0-9][0-9]: from \S+catalog import METRICS; print\(\*METRICS\)$"
    ):
        require_metrics(["zzz"])
    with pytest.raises(ParameterError, match="words='spacy' is not one of 'whitespace'"):
        list(measure(pd.Series(["a"], dtype="string[pyarrow]"), [], words="spacy"))
