# SPDX-License-Identifier: Apache-2.0
"""Meaning of the numbers of NVIDIA's prompt classifier: task types, and several scores of complexity.

References
----------
nemo_curator 0.9.0, ``classifiers/prompt_task_complexity.py``: names, order of the layers, rounding and weights.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from curator_df.errors import ParameterError
from curator_df.models.files import ModelFiles

SCORES = (
    "creativity_scope",
    "reasoning",
    "contextual_knowledge",
    "number_of_few_shots",
    "domain_knowledge",
    "no_label_reason",
    "constraint_ct",
)
"""Scores of the layers after the first, which gives the task."""
COMPLEXITY = {
    "creativity_scope": 0.35,
    "reasoning": 0.25,
    "constraint_ct": 0.15,
    "domain_knowledge": 0.15,
    "contextual_knowledge": 0.05,
    "number_of_few_shots": 0.05,
}
"""Weights of the scores in the total."""
LEAST_SECOND_TASK = 0.1
"""Minimum probability of a second task."""
LEAST_FEW_SHOTS = 0.05
"""Minimum score from which examples are counted."""
NO_TASK = "NA"
NUMBERS = ("task_type_prob", *SCORES, "prompt_complexity_score")
"""Columns of numbers, in the order of `PromptTasks.read`."""


@dataclass(frozen=True)
class PromptTasks:
    """Interpretation of a model's layers."""

    tasks: tuple[str, ...]
    """Task types, in the order of the first layer's numbers."""
    weights: tuple[tuple[float, ...], ...]
    """Weight of each number of a layer, for each of `SCORES`."""
    divisors: tuple[float, ...]
    """Divisor of the weighted sum, for each of `SCORES`."""

    @classmethod
    def of(cls, operator: str, files: ModelFiles) -> PromptTasks:
        """Read the interpretation from the configuration of a model; raise `ParameterError` for another kind of model."""
        config: dict[str, Any] = json.loads(Path(files.local_folder(), "config.json").read_bytes())
        maps = [config.get(name) or {} for name in ("task_type_map", "weights_map", "divisor_map")]
        lacking = [name for name in SCORES if name not in maps[1] or name not in maps[2]]
        widths = (len(maps[0]), *(len(maps[1].get(name, ())) for name in SCORES))
        if files.layers is None or lacking or files.layers.widths != widths or files.layers.pooling != "mean":
            raise ParameterError(
                f"{operator}: {files.name!r} is not a prompt task model: it lacks the layers head_0.fc to head_7.fc, "
                "or task_type_map, weights_map and divisor_map for them in its configuration"
            )
        return cls(
            tuple(str(maps[0][str(place)]) for place in range(len(maps[0]))),
            tuple(tuple(map(float, maps[1][name])) for name in SCORES),
            tuple(float(maps[2][name]) for name in SCORES),
        )

    def read(self, made: npt.NDArray[np.float32]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]:
        """Return the tasks and scores of texts.

        Parameters
        ----------
        made : ndarray of float32, shape (texts, numbers of all layers)
            Outputs of the layers, one after the other.

        Returns
        -------
        tasks : ndarray of int64, shape (texts, 2)
            Positions of the likeliest task and of the second, -1 if that is unlikely.
        numbers : ndarray of float64, shape (texts, 9)
            Columns of `NUMBERS`.
        """
        bounds = np.cumsum([len(self.tasks), *map(len, self.weights)])[:-1]
        first, *others = (_softmax(part) for part in np.split(made, bounds, axis=1))
        tasks: npt.NDArray[np.int64] = np.argsort(-first, axis=1, kind="stable")[:, :2]
        likely = np.take_along_axis(first, tasks, axis=1).astype(np.float64).round(3)
        tasks[likely[:, 1] < LEAST_SECOND_TASK, 1] = -1
        scores = {
            name: ((part * np.array(weights)).sum(axis=1) / divisor).round(4)
            for name, part, weights, divisor in zip(SCORES, others, self.weights, self.divisors, strict=True)
        }
        few = scores["number_of_few_shots"]
        few[few < LEAST_FEW_SHOTS] = 0.0
        whole = sum(share * scores[name] for name, share in COMPLEXITY.items())
        return tasks, np.column_stack([likely[:, 0], *scores.values(), np.round(whole, 5)])


def _softmax(numbers: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    powers = np.exp(numbers - numbers.max(axis=1, keepdims=True))
    result: npt.NDArray[np.float32] = powers / powers.sum(axis=1, keepdims=True)
    return result
