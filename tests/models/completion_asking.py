# SPDX-License-Identifier: Apache-2.0
"""A small table, and a server asked about each of its rows."""

from __future__ import annotations

import dask.dataframe as dd
import pandas as pd

import curator_df as cdf

TEXTS = ["one", None, "two {x}", "three", "one", "four"]


def table(texts=TEXTS, npartitions=1):
    docs = pd.DataFrame({"text": pd.array(texts, "string[pyarrow]"), "n": range(len(texts))})
    return dd.from_pandas(docs, npartitions=npartitions)


def ask(server, folder, texts=TEXTS, **more):
    how = {"prompt": "Say: {text}", "base_url": server.base_url, "model": "m", "cache": folder / "cache", **more}
    return cdf.add_completion(table(texts), **how)


def answers(docs):
    return [None if pd.isna(one) else one for one in docs.compute(scheduler="synchronous")["completion"]]
