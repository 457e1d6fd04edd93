# SPDX-License-Identifier: Apache-2.0
"""Memory that really runs out while a model works: the process has a data limit, as workers have."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests.models.tiny_models import write_bert

pytest.importorskip("torch", reason="needs the models extra (torch is not installed)")

LIMITED = """
import json
import random
import sys

import numpy as np
import pyarrow as pa

from curator_df.memory.process_cache import release_held
from curator_df.memory.limits import give_back_large_buffers, limit_data
from curator_df.memory.resources import NO_LIMITS
from curator_df.models.inference import run_model
from curator_df.models.model import Model
from curator_df.models.text_model import text_model

folder, dtype, room, tokens = sys.argv[1], sys.argv[2], *map(int, sys.argv[3:])
chosen = random.Random(1)
words = "the river water is long and short in a country of all".split()
texts = [" ".join(chosen.choices(words, k=chosen.choice([3, 10, 30, 60]))) for _ in range(400)]
texts = pa.chunked_array([pa.array(texts, pa.large_string())])


def vectors(tokens):
    how = {"compute_dtype": dtype, "model_inference_batch_size": 100_000, "max_batch_tokens": tokens}
    model = text_model("test", Model(folder, **how), head="mean")
    made = np.full((len(texts), 256), np.nan, np.float32)

    def keep(places, numbers):
        made[places] = numbers

    counts = run_model(model, texts, keep, NO_LIMITS)
    return made / np.linalg.norm(made, axis=1, keepdims=True), counts  # of length 1, as add_embedding makes them


give_back_large_buffers()
wanted, _ = vectors(256)
release_held()
vectors(256)
limit_data(room)
found, counts = vectors(tokens)
print(json.dumps({"differs": float(abs(found - wanted).max()), "halved": counts.counters()["batches_halved"]}))
"""


@pytest.fixture(scope="module")
def wide(tmp_path_factory):
    sizes = {"hidden_size": 256, "intermediate_size": 1024}
    return write_bert(tmp_path_factory.mktemp("wide"), seed=4, **sizes)


@pytest.mark.parametrize(
    ("dtype", "room", "near"),
    [("float32", 40_000_000, 1e-5), ("float32", 90_000_000, 1e-5), ("bfloat16", 80_000_000, 0.01)],
)
def test_vectors_are_the_same_when_memory_runs_out(wide, dtype, room, near):
    command = [sys.executable, "-c", LIMITED, str(wide), dtype, str(room), "30000"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert said["halved"] > 0
    assert said["differs"] < near
