# SPDX-License-Identifier: Apache-2.0
"""`normalize_unicode`."""

import dask
import dask.dataframe as dd
import pandas as pd
import pytest

from curator_df.errors import ParameterError, UnsupportedBackendError
from curator_df.kernels.edits.unicode_repair import RepairSettings
from curator_df.ops.cleaning.normalization import normalize_unicode, normalize_unicode_block

BLOCK = pd.DataFrame({"text": ["cafÃ©", None, "ok “fine”", "e\u0301\r\n"], "id": range(4)}, index=[3, 4, 5, 6])


@pytest.mark.parametrize("dtype", ["str", "string[pyarrow]"])
@pytest.mark.parametrize("npartitions", [1, 3])
def test_text_is_repaired_and_all_else_kept(dtype, npartitions):
    block = BLOCK.astype({"text": dtype})
    with dask.config.set({"dataframe.convert-string": False}):
        lazy = dd.from_pandas(block, npartitions=npartitions).pipe(normalize_unicode)
    expected = block.assign(text=pd.Series(["café", None, "ok “fine”", "é\n"], index=block.index, dtype=dtype))
    pd.testing.assert_frame_equal(lazy.compute(), expected)
    assert lazy.dtypes.equals(expected.dtypes)


def test_object_columns_become_arrow_strings():
    with dask.config.set({"dataframe.convert-string": False}):
        lazy = dd.from_pandas(BLOCK.astype({"text": object}), npartitions=1).pipe(normalize_unicode)
        assert lazy.compute().dtypes["text"] == lazy.dtypes["text"] == pd.StringDtype("pyarrow")


def test_rows_changed_are_counted_and_the_input_is_kept():
    before = BLOCK.copy(deep=True)
    outcome = normalize_unicode_block(BLOCK, text="text", settings=RepairSettings())
    assert outcome.counters == {"rows_changed": 2}
    pd.testing.assert_frame_equal(BLOCK, before)
    clean = normalize_unicode_block(outcome.block, text="text", settings=RepairSettings())
    assert clean.counters == {"rows_changed": 0}
    pd.testing.assert_frame_equal(clean.block, outcome.block)


def test_empty_block():
    assert len(normalize_unicode_block(BLOCK.iloc[:0], text="text", settings=RepairSettings()).block) == 0


def test_settings_reach_ftfy():
    docs = dd.from_pandas(pd.DataFrame({"text": ["x² &amp; <\r\ncafÃ©"]}), npartitions=1)
    changed = docs.pipe(
        normalize_unicode, form="NFKC", unescape_html=True, fix_encoding=False, fix_line_breaks=False
    ).compute()
    assert changed["text"][0] == "x2 & <\r\ncafÃ©"


def test_wrong_choices_are_listed():
    docs = dd.from_pandas(BLOCK, npartitions=1)
    with pytest.raises(ParameterError, match="form='nfc' is not one of 'NFC', 'NFD', 'NFKC', 'NFKD', None"):
        docs.pipe(normalize_unicode, form="nfc")
    with pytest.raises(ParameterError, match="unescape_html='yes' is not one of 'auto', True, False"):
        docs.pipe(normalize_unicode, unescape_html="yes")


def test_cudf_blocks_are_refused():
    block = type("DataFrame", (), {"__module__": "cudf.core.dataframe"})()
    with pytest.raises(UnsupportedBackendError, match="normalize_unicode works on pandas blocks"):
        normalize_unicode_block(block, text="text", settings=RepairSettings())
