# SPDX-License-Identifier: Apache-2.0
"""YAML of recipes: scalars that all programs read alike, lines of values, and what is refused with its line."""

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from curator_df.errors import RecipeError
from curator_df.receipts.recipe_file import dump
from curator_df.recipes.parameter_types import anything
from curator_df.recipes.yaml_values import read_yaml, scalar


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("true", True),
        ("False", False),
        ("null", None),
        ("~", None),
        ("7", 7),
        ("-7", -7),
        ("0", 0),
        ("0.65", 0.65),
        ("1e-3", 0.001),
        (".5", 0.5),
        ("2024-01", "2024-01"),
        ("date > 2024-01-01", "date > 2024-01-01"),
        ("s3://a:1", "s3://a:1"),
        ("8GB", "8GB"),
        ("yy", "yy"),
        ("1.2.3", "1.2.3"),
        (".", "."),
        ("-", "-"),
        ("123456789012345678901234567890", 1.2345678901234568e29),
    ],
)
def test_plain_scalars(text, value):
    found = scalar(text, "a.yaml")
    assert (found.data, type(found.data), found.doubt) == (value, type(value), "")


@pytest.mark.parametrize(
    "text", ["no", "No", "off", "ON", "yes", "010", "0x1F", "0o17", "1_000", ".inf", "-.NaN", "y", "N"]
)
def test_words_and_numbers_that_programs_read_differently_are_in_doubt(text):
    doubt = scalar(text, "a.yaml").doubt
    assert f'Write "{text}"' in doubt
    assert read_yaml(f'a: "{text}"', "a.yaml").data["a"].doubt == ""
    assert read_yaml(f"a: '{text}'", "a.yaml").data["a"].data == text


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("2024-01-01", "a date"),
        ("2024-1-1", "a date"),
        ("2024-01-01 12:00:00", "a date"),
        ("2024-01-01T12:00:00Z", "a date"),
        ("01:00:00", "a number to base 60"),
        ("-1:30.5", "a number to base 60"),
    ],
)
def test_dates_and_times_need_quotes(text, kind):
    said = f'{text} without quotes is {kind} in YAML 1.1 and text in YAML 1.2. Write "{text}" for the text'
    assert scalar(text, "a.yaml").doubt == said
    assert read_yaml(f'a: "{text}"', "a.yaml").data["a"].data == text


@pytest.mark.parametrize(
    ("text", "line", "said"),
    [
        ("a:\n\tb: 1\n", 2, "found a tab at 'b: 1'. Indent with spaces"),
        ("a: 1\nb: 2\na: 3\n", 3, "the key 'a' occurs twice, first in line 1. Remove one of them"),
        ("a:\n  b: {c: 1, c: 2}\n", 2, "a.b: the key 'c' occurs twice"),
        ("a: &x 1\n", 1, "found the anchor &x, which recipes do not have"),
        ("a: 1\nb: *x\n", 2, r"found the alias \*x, which recipes do not have"),
        ("a: {<<: {b: 1}}\n", 1, "found the merge key '<<'"),
        ("a: !!str 1\n", 1, "found the tag 'tag:yaml.org,2002:str'"),
        ("a: !!python/object/apply:os.system [ls]\n", 1, "found the tag"),
        ("a: 1\n---\nb: 1\n", 2, "a second document begins at '---'"),
        ("a: {b: 1\nc: 2\n", 2, r"not valid YAML at 'c: 2': .*\(in what begins in line 1\)"),
        ("a: b: c\n", 1, "not valid YAML at 'a: b: c': .*Put a text that has ': ' in it in quotes"),
        ("a: 'b\n", 2, "not valid YAML at 'the end of the file'"),
        ("a: 1\nb: \x01\n", 2, r"found the character U\+0001, which YAML does not allow"),
        ("a: @b\n", 1, "not valid YAML at 'a: @b'"),
        ("[a]: 1\n", 1, "found a list or a mapping as a key"),
        ("no: 1\n", 1, 'the key no: no without quotes .* Write "no"'),
        ("", 1, "the file is empty"),
        ("# only a comment\n", 1, "the file is empty"),
        ("a:\n" + "[" * 101, 2, "lists and mappings are nested more than 100 levels deep. Write"),
        (
            "".join(" " * level + "a:\n" for level in range(101)) + " " * 101 + "b",
            101,
            "nested more than 100 levels deep",
        ),
    ],
)
def test_what_is_not_a_recipes_yaml_is_refused_with_its_line(text, line, said):
    with pytest.raises(RecipeError, match=said) as raised:
        read_yaml(text, "a.yaml")
    assert (raised.value.path, raised.value.line) == ("a.yaml", line)
    assert str(raised.value).startswith("a.yaml:" if line else "a.yaml: ")


def test_a_hundred_levels_are_read_and_thousands_are_refused_before_their_end():
    assert read_yaml("[" * 100 + "]" * 100, "a.yaml").data
    with pytest.raises(
        RecipeError, match="100 levels"
    ):  # parsing all of it takes a minute, and ends with another error
        read_yaml("[" * 3_000, "a.yaml")


def test_values_know_their_lines():
    found = read_yaml("# first\na:\n  - b\n  - c: 1\n    d: >-\n      e\n      f\n", "a.yaml")
    items = found.data["a"].data
    assert [found.data["a"].line, items[0].line, items[1].data["c"].line] == [3, 3, 4]
    assert items[1].key_lines == {"c": 4, "d": 5}
    assert items[1].data["d"].data == "e f"


texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
TRAPS = (
    "no",
    "n",
    "~",
    "",
    "1e3",
    "0x1",
    "1_0",
    "08",
    "a: b",
    "a #b",
    "- a",
    "*a",
    "&a",
    "!a",
    "<<",
    "a\nb",
    " a ",
    "\t",
    "=",
)


@given(
    st.recursive(
        st.none()
        | st.booleans()
        | st.integers(-(10**18), 10**18)
        | st.floats(allow_nan=False, allow_infinity=False)
        | texts
        | st.sampled_from(TRAPS),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts | st.sampled_from(TRAPS), inner, max_size=3),
        max_leaves=6,
    )
)
def test_what_a_receipt_writes_is_read_as_it_was(value):
    text = dump({"a": value})
    assert anything(read_yaml(text, "a.yaml"), "") == {"a": value}
    assert yaml.safe_load(text) == {"a": value}
