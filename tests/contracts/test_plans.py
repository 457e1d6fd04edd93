# SPDX-License-Identifier: Apache-2.0
"""The price of every operator: a bound that `explain` promises does not change by accident.

``tests/data/plans.json`` has the passes, the factors and the fixed memory of each contract case. After a change on purpose::

    python -m tests.contracts.test_plans   # writes the file again; say in the commit which figures changed, and why
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import curator_df as cdf
from tests.contracts.operator_cases import ALL_CASES, CASES, table

STORED = Path(__file__).resolve().parents[1] / "data/plans.json"
OF_THIS_MACHINE = ("compile", "reused", "working files")
"""Labels of remarks that depend on what happened before on this machine."""


def price_of(case: Any) -> dict[str, Any]:
    """Return what the plan of a case promises, without what follows from the memory of this process."""
    plan = cdf.explain(case(table()), memory="8GB", cpus=2)
    passes = {}
    for number, stage in enumerate(plan.stages, start=1):
        steps = [
            f"{name}: {factor:.2f} {'measured' if measured else 'assumed'}" for name, factor, measured in stage.steps
        ]
        passes[f"{number}  {stage.title}"] = [*steps, f"a task: {stage.task_factor:.2f}"]
    found: dict[str, Any] = {"passes": passes}
    if plan.held_bytes:
        found["held_bytes"] = plan.held_bytes
    if plan.limits:
        found["limits"] = [f"{name}: {most}" for name, most in plan.limits]
    if needs := plan.working_files.needs:
        found["working_files"] = [
            ", ".join([f"{need.name}: {' + '.join(need.parts)}", need.worst_case]) for need in needs
        ]
    remarks = [f"{label}: {text}" for label, text in plan.remarks if label not in OF_THIS_MACHINE]
    return found | ({"remarks": remarks} if remarks else {})


def test_no_bound_has_changed_by_accident():
    stored = json.loads(STORED.read_text(encoding="utf-8"))
    assert len(CASES) > 50
    assert set(stored) == {str(case) for case in ALL_CASES}
    changed = {
        str(case): (price, stored[str(case)]) for case in CASES if (price := price_of(case)) != stored[str(case)]
    }
    assert not changed, "\n".join(f"{name}: now {now}, before {before}" for name, (now, before) in changed.items())


if __name__ == "__main__":
    kept = json.loads(STORED.read_text(encoding="utf-8")) if STORED.exists() else {}
    kept |= {str(case): price_of(case) for case in CASES}
    names = {str(case) for case in ALL_CASES}
    STORED.write_text(json.dumps({name: kept[name] for name in sorted(names)}, indent=1) + "\n", encoding="utf-8")

    os._exit(0)  # the server that answers prompts would be waited for
