# SPDX-License-Identifier: Apache-2.0
"""Which backend a block is of, without importing RAPIDS."""

import pandas as pd
import pytest

from curator_df.core.backend import backend_of, require_backend
from curator_df.errors import UnsupportedBackendError


class FakeCudfFrame:
    __module__ = "cudf.core.dataframe"


def test_backend_is_read_off_the_type():
    assert backend_of(pd.DataFrame()) == backend_of(pd.Series(dtype=object)) == "pandas"
    assert backend_of(FakeCudfFrame()) == "cudf"


def test_anything_else_is_refused_by_name():
    with pytest.raises(UnsupportedBackendError, match=r"this is a builtins\.dict"):
        backend_of({})


def test_operators_say_what_they_support_why_and_the_way_out():
    require_backend(pd.DataFrame(), "keep_longer", "pandas", because="lengths are compared with NumPy")
    with pytest.raises(UnsupportedBackendError) as refusal:
        require_backend(FakeCudfFrame(), "keep_longer", "pandas", because="lengths are compared with NumPy")
    assert str(refusal.value) == (
        "keep_longer works on pandas blocks, and this table has cudf blocks: lengths are compared with NumPy; convert it "
        "first with to_backend(df, 'pandas')"
    )


def test_a_refusal_needs_a_reason():
    with pytest.raises(TypeError, match="because"):
        require_backend(pd.DataFrame(), "keep_longer", "pandas")
