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
    with pytest.raises(UnsupportedBackendError, match=r"found builtins\.dict"):
        backend_of({})


def test_operators_name_what_they_support():
    require_backend(pd.DataFrame(), "keep_profile", "pandas")
    with pytest.raises(UnsupportedBackendError, match="keep_profile works on pandas blocks, and this table has cudf"):
        require_backend(FakeCudfFrame(), "keep_profile", "pandas")
