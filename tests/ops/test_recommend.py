# SPDX-License-Identifier: Apache-2.0
"""What is recommended is what the planners plan, and a disk that is too small makes it a part of the rows."""

import json
import shutil
from types import SimpleNamespace

import pytest

import curator_df as cdf
from curator_df import errors
from curator_df.core.plan import MAX_DEFAULT_BLOCK_BYTES
from curator_df.ops import recommend as module

ROWS = 3_000


@pytest.fixture
def corpus(tmp_path):
    with open(tmp_path / "a.jsonl", "w") as file:
        file.writelines(json.dumps({"id": n, "text": f"row number {n} and more of it"}) + "\n" for n in range(ROWS))
    return tmp_path / "a.jsonl"


def test_what_is_recommended_is_what_is_planned(corpus, tmp_path):
    found = cdf.recommend(corpus, memory="1.2GB", cpus=2, workdir=tmp_path)
    chain = cdf.read_jsonl(corpus).pipe(cdf.normalize_unicode).pipe(cdf.drop_near_duplicates)
    plan = cdf.explain(chain, memory="1.2GB", cpus=2)
    assert found.projected_bytes == plan.projected_bytes <= found.memory_bytes == 1_200_000_000
    assert (found.workers, found.threads) == (plan.layout.workers, plan.layout.threads)
    assert found.block_bytes == plan.stages[-1].block_bytes <= MAX_DEFAULT_BLOCK_BYTES
    assert found.rows == pytest.approx(ROWS, rel=0.3)
    assert (found.bands_per_iteration, found.use_64_bit_hash, found.sample_fraction) == (20, False, 1.0)
    assert dict(found.to_frame().values)["rows"] == found.rows
    assert "bands_per_iteration=20 of 20" in str(found) and "32 bits" in found._repr_html_()


def test_many_rows_need_fewer_bands_at_a_time_and_a_wider_hash(corpus, tmp_path, monkeypatch):
    monkeypatch.setattr(module, "estimate_rows", lambda *_: 2_000_000_000)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=10**15))
    found = cdf.recommend(corpus, memory="2GB", cpus=2, workdir=tmp_path)
    assert (found.bands_per_iteration, found.use_64_bit_hash) == (1, True)
    assert found.disk_bytes > 2_000_000_000 * 21 * 24  # a key of 24 bytes for each band and for the text
    assert found.projected_bytes <= 2_000_000_000


def test_where_the_disk_is_too_small_a_part_of_the_rows_fits(corpus, tmp_path, monkeypatch):
    whole = cdf.recommend(corpus, memory="1.2GB", cpus=2, workdir=tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=whole.disk_bytes * 3 // 5))
    part = cdf.recommend(corpus, memory="1.2GB", cpus=2, workdir=tmp_path)
    assert 0.3 < part.sample_fraction < 0.61
    assert f"sample_rows(fraction={part.sample_fraction})" in str(part)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=0))
    none = cdf.recommend(corpus, memory="1.2GB", cpus=2, workdir=tmp_path)
    assert none.sample_fraction == 0.0
    assert "name another workdir=" in str(none)


def test_what_cannot_be_read_or_does_not_fit_is_said(corpus, tmp_path):
    with pytest.raises(errors.BudgetError, match="under the floor"):
        cdf.recommend(corpus, memory="100MB")
    with pytest.raises(errors.ColumnError, match="body"):
        cdf.recommend(corpus, text="body")
    (tmp_path / "b.parquet").write_bytes(b"")
    with pytest.raises(errors.ParameterError, match="1 Parquet files and 1 others"):
        cdf.recommend(tmp_path)
