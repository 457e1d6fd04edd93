# SPDX-License-Identifier: Apache-2.0
"""Start the scripts of this folder, which need a process of their own: numba is told of its simulator before it is imported."""

import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

from curator_df.kernels.minhash.scheme import Scheme

CHECKOUT = Path(__file__).resolve().parents[2]
SCHEMES = {
    "signatures_32": Scheme("characters", 24, 2, 3),
    "signatures_64": Scheme("characters", 5, 2, 2, use_64_bit_hash=True),
    "signatures_of_two": Scheme("characters", 2, 1, 2),
    "normalized_signatures": Scheme("characters", 9, 1, 2, normalize="case_and_spaces"),
    "word_signatures": Scheme("words", 2, 2, 2),
    "normalized_word_signatures": Scheme("words", 5, 2, 2, use_64_bit_hash=True, normalize="case_and_spaces"),
}
"""Of which signatures are compared."""
STOP_WORDS_OF_TEST = ("The", "and", "\xc4\xd6", "\u4e00\u4e8c\u4e09", "a", "b", "in", "is", "with", "this", "x" * 1000)
"""A list that is not that of English."""
LONG_METRICS = (
    ["top_2_gram_character_ratio", "repeated_5_gram_character_ratio"],
    ["nemo_duplicate_5_gram_character_ratio"],
)
"""Of long texts, one after the other: few, because the simulator is slow."""


def run_script(name, *arguments, simulated):
    """Run a script of this folder in a process of its own; return what it prints, or skip if it says that it cannot."""
    settings = {**os.environ, "PYTHONPATH": str(CHECKOUT)}
    if simulated:
        settings |= {"NUMBA_ENABLE_CUDASIM": "1", "NUMBA_DISABLE_JIT": "1"}
    within = [
        "timeout",
        "-s",
        "ABRT",
        "280",
        sys.executable,
        "-X",
        "faulthandler",
    ]  # says where it stood, if it stands still
    command = [*within, "-m", f"tests.gpu.{name}", *map(str, arguments)]
    done = subprocess.run(command, cwd=CHECKOUT, env=settings, capture_output=True, text=True, check=False)
    if done.stderr.startswith("no compiler for devices"):
        pytest.skip(done.stderr.strip().splitlines()[0])
    assert done.returncode == 0, done.stderr
    return done.stdout


def put_texts(texts, path):
    """Write an array of texts where a script reads it."""
    batch = pa.record_batch([texts], names=["text"])
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, batch.schema) as writer:
        writer.write_batch(batch)
