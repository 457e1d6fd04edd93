# SPDX-License-Identifier: Apache-2.0
"""A whole run with a model, in a process that has no torch: ``-m tests.models.embedding_run MODEL INPUT OUTPUT MEMORY``."""

from __future__ import annotations

import json
import sys

import curator_df as cdf
from curator_df.memory import process_cache as held


def held_now() -> int:
    """Return how many things this process holds for its tasks."""
    return len(held._held)


def has_torch() -> bool:
    """Tell whether this process has imported torch."""
    return "torch" in sys.modules


def main() -> None:
    """Run, and print what there is to know as JSON."""
    model, source, output, memory = sys.argv[1:]
    with cdf.start_cluster(memory=memory, cpus=2) as cluster:
        docs = cdf.read_jsonl(source).pipe(cdf.add_embedding, model, precision="float16")
        receipt = cdf.write_parquet(docs, output)
        plain = cdf.write_parquet(cdf.read_jsonl(source), f"{output}-plain")  # torch stays in workers
        (step,) = [step for step in receipt.steps if step.name == "add_embedding"]
        said = {
            "counters": step.counters,
            "models": json.loads(receipt.models().to_json(orient="records")),
            "held": sorted(cluster.client.run(held_now).values()),
            "workers_have_torch": sorted(cluster.client.run(has_torch).values()),
            "client_has_torch": has_torch(),
            "memory": [(one.measured_bytes, one.projected_bytes, one.allowed_bytes) for one in (receipt, plain)],
        }
    print(json.dumps(said))  # noqa: T201 - a script that answers on standard output


if __name__ == "__main__":
    main()
