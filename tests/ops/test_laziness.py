# SPDX-License-Identifier: Apache-2.0
"""Building a table computes nothing and imports no compiler."""

import subprocess
import sys

SCRIPT = """
import sys
import dask, dask.dataframe as dd, pandas as pd
from curator_df.ops.filters.profile import add_profile, keep_profile
from curator_df.ops.cleaning.normalization import normalize_unicode
from curator_df.ops.filters.where import keep_where
from curator_df.profiles import DATATROVE_GOPHER_QUALITY as GOPHER

def refuse(*args, **kwargs):
    raise AssertionError("something was computed")

with dask.config.set(scheduler=refuse):
    docs = dd.from_pandas(pd.DataFrame({"text": ["a"]}), npartitions=1)
    docs = docs.pipe(normalize_unicode).pipe(keep_profile, GOPHER.replace(gopher_short_doc=2))
    docs = docs.pipe(add_profile, GOPHER).pipe(keep_where, "hash_ratio < 1").pipe(keep_where, lambda block: block.x)
    docs.columns, docs.dtypes, docs._meta
print(sorted({"numba", "ftfy", "cudf", "torch"} & set(sys.modules)))
"""


def test_building_computes_nothing_and_imports_no_compiler():
    assert subprocess.check_output([sys.executable, "-c", SCRIPT], text=True).strip() == "[]"
