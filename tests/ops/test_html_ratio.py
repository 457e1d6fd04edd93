# SPDX-License-Identifier: Apache-2.0
"""`add_html_text_ratio`: what is text in a page, and what a plan knows of it. Parity is in tests/profiles."""

from __future__ import annotations

import pandas as pd
import pytest

import curator_df as cdf
from curator_df.errors import ColumnError, ParameterError
from curator_df.ops.filters.source_code import MOST_UNCLOSED, PAGE_FACTOR, html_text_ratios, text_characters
from curator_df.profiles import NEMO_CODE_HTML
from tests.contracts.operator_cases import computed, kernels_of, table


@pytest.mark.parametrize(
    ("page", "characters"),
    [
        ("<p>caf\u00e9</p>", 4),
        ("<p>a &amp; b&#x3C;&nosuch;</p>", 6 + len("&nosuch")),
        ("<script>if (a < b) x()</script>c<style>p {}</style>", 1),
        ("<!DOCTYPE html><!-- no --><?pi?>a", 1),
        ("<b>a</b>  \n <b>c</b>", 3),
        ("<pre><b>a</b>  \n <b>c</b></pre>", 6),
        ("<template>no</template><ruby>a<rt>no</rt></ruby>", 1),
        ("<br>a</br>b", 2),
        ("a<![CDATA[b]]>", 2),
        ("no markup", 9),
        ("<p", 2),
        ("", 0),
    ],
)
def test_what_is_text(page, characters):
    assert text_characters(page) == characters


def test_pages_that_cannot_be_read_have_nothing_and_are_counted():
    endless = "<a" * (MOST_UNCLOSED + 1)
    ratios, counts = html_text_ratios(pd.Series(["<![foo bar[", endless, None, "a"], dtype="string[pyarrow]"), 0, 10**6)
    assert ratios.tolist() == [0, 0, 0, 1]
    assert counts == {"pages_cut": 0, "pages_not_parsed": 2}


def test_a_long_page_is_read_up_to_its_limit():
    ratios, counts = html_text_ratios(pd.Series(["<b>\u00e9\u00e9\u00e9" + "<i>" * 50], dtype="string[pyarrow]"), 0, 6)
    assert ratios.tolist() == [1 / 4]  # three bytes of a tag, and one letter and a half
    assert counts["pages_cut"] == 1


def test_little_text_is_none():
    docs = table().assign(text="<p>" + "a" * 9 + "</p>")
    assert computed(docs.pipe(cdf.add_html_text_ratio, min_chars=10))["html_text_ratio"].unique().tolist() == [0.0]
    assert computed(docs.pipe(cdf.add_html_text_ratio, min_chars=9))["html_text_ratio"].unique().tolist() == [9 / 16]


def test_the_profile_judges_by_the_column():
    with pytest.raises(ColumnError, match="keep_profile needs the column 'html_text_ratio'"):
        cdf.keep_profile(table(), NEMO_CODE_HTML)
    docs = table().assign(text="<p>" + "a" * 200 + "</p>").pipe(cdf.add_html_text_ratio)
    assert computed(docs.pipe(cdf.keep_profile, NEMO_CODE_HTML))["html_text_ratio"].min() > 0.9


def test_a_plan_has_room_for_a_page():
    [kernel] = kernels_of(cdf.add_html_text_ratio(table(), max_page_size="1MB"))
    assert kernel.price.fixed_bytes == PAGE_FACTOR * 1_000_000


def test_what_is_wrong_is_said_at_the_door():
    with pytest.raises(ParameterError, match="min_chars=-1"):
        cdf.add_html_text_ratio(table(), min_chars=-1)
    with pytest.raises(ParameterError, match="max_page_size"):
        cdf.add_html_text_ratio(table(), max_page_size="big")
    with pytest.raises(ColumnError, match="'score'"):
        cdf.add_html_text_ratio(table(), into="score")
