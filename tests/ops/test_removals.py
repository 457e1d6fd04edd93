# SPDX-License-Identifier: Apache-2.0
"""`remove_c4_lines`."""

import dask.dataframe as dd
import pandas as pd
import pytest
from hypothesis import given

from curator_df.errors import ColumnError, SchemaError, UnsupportedBackendError
from curator_df.ops.cleaning.removals import remove_c4_lines, remove_c4_lines_block
from tests.kernels.plain_metrics import c4_lines
from tests.kernels.test_c4_texts import TEXTS

PAGE = "Home | About\nA line of prose.[1]\r\nRead our Privacy Policy.\nIt has no end\nEnable Javascript to go on.\nTwo words."
CASES = [
    (PAGE, "A line of prose.", "Home | About\nA line of prose.\nIt has no end"),
    ("[1] One two three. [edit]", "", "One two three."),
    ("See [0] and [12], ok.", "See  and , ok.", "See  and , ok."),
    ("one two three...", "", "one two three..."),
    ("some lorem ipsum text.\n1\n2", "some lorem ipsum text.\n1\n2", "some lorem ipsum text.\n1\n2"),
    ("short {\nit is a {.", "short {\nit is a {.", "short {\nit is a {."),
    ("short {\nit is a line.", "it is a line.", "it is a line."),
    (None, None, None),
    ("", "", ""),
    ("We use Coo\u212aies on this site.", "", ""),
    (
        f"{'x' * 1001} is too long.\n{'x' * 1000} is not long.",
        f"{'x' * 1000} is not long.",
        f"{'x' * 1000} is not long.",
    ),
]


@pytest.mark.parametrize("require_punctuation", [True, False])
def test_lines_of_a_text(require_punctuation, npartitions):
    texts, *kept = zip(*CASES, strict=True)
    block = pd.DataFrame({"id": range(len(CASES)), "text": pd.array(texts, "string[pyarrow]")})
    lazy = dd.from_pandas(block, npartitions=npartitions).pipe(remove_c4_lines, require_punctuation=require_punctuation)
    result = lazy.compute()
    assert result["id"].equals(block["id"])
    wanted = kept[0] if require_punctuation else kept[1]
    assert [None if text is pd.NA else text for text in result["text"]] == list(wanted)


@given(TEXTS)
def test_any_text_becomes_what_plain_python_makes_of_it(text):
    for is_punctuated in (True, False):
        block = pd.DataFrame({"text": pd.array([text], "string[pyarrow]")})
        kept, failure = c4_lines(text, is_punctuated=is_punctuated)
        wanted = text if failure else "\n".join(kept).strip()
        outcome = remove_c4_lines_block(block, text="text", require_punctuation=is_punctuated)
        assert outcome.block["text"].tolist() == [wanted]
        assert outcome.counters == {"rows_changed": int(wanted != text)}
        assert wanted != text or outcome.block is block


def test_wrong_tables_are_refused_when_the_operator_is_called():
    docs = dd.from_pandas(pd.DataFrame({"id": [1], "text": pd.array(["a"], "string[pyarrow]")}), npartitions=1)
    with pytest.raises(ColumnError, match="remove_c4_lines needs the column 'body'"):
        docs.pipe(remove_c4_lines, text="body")
    with pytest.raises(SchemaError, match="remove_c4_lines needs text in the column 'id'"):
        docs.pipe(remove_c4_lines, text="id")
    block = type("DataFrame", (), {"__module__": "cudf.core.dataframe"})()
    with pytest.raises(UnsupportedBackendError, match="remove_c4_lines works on pandas blocks"):
        remove_c4_lines_block(block, text="text", require_punctuation=True)
