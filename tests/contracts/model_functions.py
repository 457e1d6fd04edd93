# SPDX-License-Identifier: Apache-2.0
"""Functions that stand for models in the contracts: they need no package, and cost next to nothing."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np


def letter_counts(texts: Sequence[str]) -> list[list[int]]:
    """A model of two classes as users write it."""
    return [[len(text), 10] for text in texts]


def length_vectors(texts: Sequence[str]) -> Any:
    """A model that makes vectors."""
    return np.outer([len(text) + 1 for text in texts], np.arange(384))


def vowel_counts(texts: Sequence[str]) -> list[list[int]]:
    """Another one."""
    return [[text.count("o"), text.count("e")] for text in texts]


@dataclass(frozen=True)
class LetterEntities:
    """A model for ``presidio=`` that takes every letter by itself for an entity."""

    entities: tuple[str, ...] = ("LOCATION",)
    held_bytes: int = 0
    call_bytes: int = 0
    libraries: dict[str, int] = field(default_factory=dict)
    shared: dict[str, int] = field(default_factory=dict)

    def find(self, text: str) -> list[tuple[int, int, str]]:
        """Find them."""
        return [(*found.span(), self.entities[0]) for found in re.finditer(r"\b[A-Za-z]\b", text)]
