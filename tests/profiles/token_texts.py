# SPDX-License-Identifier: Apache-2.0
"""Texts of pieces that tokenizer rules look at."""

from __future__ import annotations

from hypothesis import strategies as st

from curator_df.kernels.english_tokens.rules import rules

MARKS = ". .. ... , - -- --- — – ' ’ \" ( ) [ : ; / = < > + * ^ ~ $ % ° °C … …… # _ @ :// ? ! & « » ½ ² \u200b 😀"
PARTS = (
    "www. example.com http 192.168.1.1 8.8.8.8 10.0.0.1 :8080 ?q .co.uk user 5 10 ٣ km kg m² US$ C$ € £ A AB a b é É "
    "漢字 я Я 's ’s n't U.S e.g a.m Mr Corp :- 8 D o °F. s S The end x"
)
EXCEPTIONS = [item.replace(" ", "") for item in rules()["exceptions"]]
WORDS = st.one_of(
    st.lists(
        st.sampled_from(MARKS.split()) | st.sampled_from(PARTS.split()) | st.sampled_from(EXCEPTIONS), max_size=6
    ).map("".join),
    st.sampled_from(EXCEPTIONS),
    # What was not assigned in Unicode 14 is no letter here, and may be one there.
    st.text(st.characters(exclude_categories=("Cs", "Cn")), max_size=6),
)
SPACES = st.sampled_from([" ", " ", " ", "", "  ", "\n", "\n\n", "\t", "\u00a0", "\u3000", "\x1f"])
TOKEN_TEXTS = st.lists(WORDS.flatmap(lambda word: SPACES.map(word.__add__)), max_size=12).map("".join)
