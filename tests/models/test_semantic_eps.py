# SPDX-License-Identifier: Apache-2.0
"""What ``eps=`` of semantic deduplication may be: numbers, NumPy's too, and of `find_semantic_duplicates` lists of them."""

from __future__ import annotations

import numpy as np
import pytest

import curator_df as cdf
from curator_df import errors
from tests.models.vector_rows import vectors, write_rows

pytest.importorskip("sklearn", reason="needs the models extra (scikit-learn is not installed)")


@pytest.fixture
def cluster():
    with cdf.start_cluster(memory="6GB", cpus=2) as running:
        yield running


@pytest.mark.parametrize(
    ("eps", "said"),
    [
        (None, "eps=None must be a number or a list of numbers, not NoneType"),
        (np.array(0.1), "must be a number or a list of numbers, not ndarray"),
        ("0.1", "eps='0.1' must be a number, not str"),
        ([0.1, "0.2"], "eps='0.2' must be a number, not str"),
        ([0.1, None], "eps=None must be a number, not NoneType"),
        ([True], "eps=True must be a number, not bool"),
        (float("nan"), "eps=nan must be at least 0 and less than 1"),
        ([0.1, np.float32(2)], r"eps=.*2\.0\)? must be at least 0 and less than 1"),
    ],
    ids=repr,
)
def test_eps_that_are_no_numbers_are_refused(tmp_path, eps, said):
    docs = cdf.read_parquet(write_rows(tmp_path / "in", vectors(9)))
    with pytest.raises(errors.ParameterError, match=said):
        cdf.find_semantic_duplicates(docs, eps=eps, workdir=tmp_path / "work")
    with pytest.raises(errors.ParameterError, match="drop_semantic_duplicates: eps="):
        cdf.drop_semantic_duplicates(docs, eps=eps)


@pytest.mark.usefixtures("cluster")
def test_eps_may_be_numbers_of_numpy(tmp_path):
    docs = cdf.read_parquet(write_rows(tmp_path / "in", vectors(30)))
    single = np.float32(0.1)
    groups = cdf.find_semantic_duplicates(docs, eps=single, workdir=tmp_path / "one")
    assert set(groups.compute().eps) == {float(single)}
    cdf.write_parquet(cdf.drop_semantic_duplicates(docs, eps=single, groups=groups), tmp_path / "out")
    several = cdf.find_semantic_duplicates(docs, eps=np.array([0.25, 0.125], np.float32), workdir=tmp_path / "two")
    assert several.compute().eps.unique().tolist() == [0.125, 0.25]
    cdf.write_parquet(cdf.drop_semantic_duplicates(docs, eps=np.float64(0.25), groups=several), tmp_path / "again")
