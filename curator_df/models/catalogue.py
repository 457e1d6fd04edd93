# SPDX-License-Identifier: Apache-2.0
"""Published classifiers as data: where a model is, how much of a text it reads, and what its numbers mean."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Classifier:
    """A model that gives a text a class, and how it is used."""

    name: str
    """What it is called here."""
    model: str
    """A folder, or the id of a model of the Hugging Face hub."""
    source: str
    """Where its use is published."""
    max_length: int | None = None
    """Tokens of a text that are read; None for what the model allows, 512 at most."""
    max_chars: int | None = None
    """Characters of a text that become tokens; None for 16 for each token."""
    tiers: Mapping[str, float] | None = None
    """Of a model with one number: the least number of each class, from the highest to the lowest."""
    clip: tuple[float, float] | None = None
    """Of a model with one number: its bounds."""
    revision: str | None = None
    """Commit, tag or branch; None for the latest, whose commit is then part of what a run compares."""


FINEWEB_EDU = Classifier(
    "FINEWEB_EDU",
    "HuggingFaceFW/fineweb-edu-classifier",
    "Penedo et al. 2024, https://arxiv.org/abs/2406.17557; nemo_curator 0.9.0, classifiers/fineweb_edu.py",
    max_length=512,
    tiers={"high_quality": 2.5, "low_quality": 0.0},
    clip=(0.0, 5.0),
)
"""How educational a text is, from 0 to 5."""
FINEWEB_MIXTRAL_EDU = Classifier(
    "FINEWEB_MIXTRAL_EDU",
    "nvidia/nemocurator-fineweb-mixtral-edu-classifier",
    "nemo_curator 0.9.0, classifiers/fineweb_edu.py",
    max_length=512,
    tiers={"high_quality": 2.5, "low_quality": 0.0},
    clip=(0.0, 5.0),
)
"""The same, learned from another model's judgements."""
FINEWEB_NEMOTRON_EDU = Classifier(
    "FINEWEB_NEMOTRON_EDU",
    "nvidia/nemocurator-fineweb-nemotron-4-edu-classifier",
    "nemo_curator 0.9.0, classifiers/fineweb_edu.py",
    max_length=512,
    tiers={"high_quality": 2.5, "low_quality": 0.0},
    clip=(0.0, 5.0),
)
"""The same, learned from a third model's judgements."""
