# SPDX-License-Identifier: Apache-2.0
"""Interpretation of a classifier's output for a text."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from curator_df.errors import ParameterError
from curator_df.ops.filters.quality_tiers import ascending_tiers

Meaning = Literal["probabilities", "largest", "one", "answers"]


@dataclass(frozen=True)
class ClassScores:
    """Names of classes, and the meaning of the numbers."""

    labels: tuple[str, ...]
    """Labels in the order of the numbers; for a single score in the order of ``bounds``."""
    meaning: Meaning
    """Kind of output: numbers from which probabilities follow; numbers of which the largest decides; a single score; or the
    position of a class, its probability and an answer, as `answering.answered` returns them."""
    bounds: tuple[float, ...] = ()
    """Minimum scores of the second class, the third and so on, in ascending order, for a single score."""
    clip: tuple[float, float] | None = None
    """Bounds to which a single score is clipped."""
    column: int | None = None
    """Position of the class whose score is kept; None for the class of the text."""

    @classmethod
    def of(
        cls,
        operator: str,
        labels: tuple[str, ...] | None,
        own: tuple[str, ...],
        width: int,
        thresholds: Mapping[str, float] | None,
        clip: tuple[float, float] | None,
        meaning: Meaning,
    ) -> ClassScores:
        """Check that names and numbers match: ``labels`` as given, or else the model's ``own``."""
        if width == 1 and meaning == "probabilities":
            if not thresholds:
                raise ParameterError(
                    f"{operator}: this model returns a single score. Map scores to classes with thresholds=, the minimum score "
                    "of each class, such as thresholds={'high': 2.5, 'low': 0.0}"
                )
            if labels is not None:
                raise ParameterError(
                    f"{operator}: labels={list(labels)!r} does not apply to a model that returns a single score, because "
                    "thresholds= names its classes. Leave labels= out"
                )
            ascending, bounds = ascending_tiers(operator, thresholds)
            return cls(ascending, "one", bounds[1:], clip)
        if thresholds:
            raise ParameterError(
                f"{operator}: thresholds= needs a model that returns a single score, but this one has {width} classes. Leave it "
                "out, or use a model with one score"
            )
        names = labels or own
        if len(names) != width or len(set(names)) != width:
            raise ParameterError(
                f"{operator}: labels= must be {width} different names, one for each class of the model; found "
                f"{', '.join(names)}"
            )
        return cls(names, meaning)

    def of_class(self, operator: str, label: str) -> ClassScores:
        """Return these scores with those of one class, regardless of the class of a text."""
        if self.meaning in ("one", "answers") or label not in self.labels:
            single = {"one": "none (the model returns a single score)", "answers": "none (only the answer has a score)"}
            listed = single.get(self.meaning) or ", ".join(map(repr, self.labels))
            raise ParameterError(
                f"{operator}: score_of={label!r} is not a class with its own score. Available classes: {listed}"
            )
        return dataclasses.replace(self, column=self.labels.index(label))

    def read(self, made: npt.NDArray[Any]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float32]]:
        """Return for each row the position of its class in ``labels`` (-1: NaN, so there is no class), and its score.

        Examples
        --------
        >>> scores = ClassScores(("low", "high"), "one", (2.5,), (0.0, 5.0))
        >>> [found.tolist() for found in scores.read(np.array([[2.4], [2.5], [7.0]], dtype=np.float32))]
        [[0, 1, 1], [2.4000000953674316, 2.5, 5.0]]
        """
        if self.meaning == "answers":
            return made[:, 0].astype(np.int64), made[:, 1].astype(np.float32)
        if self.meaning == "one":
            numbers = made[:, 0] if self.clip is None else np.clip(made[:, 0], *self.clip)
            places = np.searchsorted(np.asarray(self.bounds, numbers.dtype), numbers, side="right")
            return np.where(np.isnan(numbers), -1, places), numbers
        is_number: npt.NDArray[np.bool_] = np.less(made, np.inf).all(axis=1)  # NaN is not less either
        made = np.where(is_number[:, None], made, 0)
        codes = made.argmax(axis=1)
        largest = made[np.arange(len(made)), codes]
        numbers = largest if self.column is None else made[:, self.column]
        if self.meaning == "probabilities":
            # The others are not above the largest, so nothing overflows.
            numbers = np.exp(numbers - largest) / np.exp(made - largest[:, None]).sum(axis=1)
        return np.where(is_number, codes, -1), np.where(is_number, numbers, np.nan)
