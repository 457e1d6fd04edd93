# SPDX-License-Identifier: Apache-2.0
"""Classifiers that are language models and answer in words: what they are asked, and which class an answer names.

References
----------
Ghosh et al. 2024 (Aegis), https://arxiv.org/abs/2404.05993; Inan et al. 2023 (Llama Guard), https://arxiv.org/abs/2312.06674.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

UNKNOWN = "unknown"
"""Class of a text for which an answer names none."""


@dataclass(frozen=True)
class Answers:
    r"""What a language model is asked about a text, and how its answer is read.

    Examples
    --------
    >>> asked = Answers("Is it safe? ", " [/INST]", "safe", "unsafe", ("O1", "O2"))
    >>> [asked.labels[asked.read(answer)] for answer in ("safe", "unsafe\nO2", "unsafe\nO1,O2", "no idea")]
    ['safe', 'O2', 'unknown', 'unknown']
    """

    before: str
    """What stands before the text."""
    after: str
    """And after it. Neither is cut."""
    good: str
    """First line of the answer to a text with nothing wrong."""
    bad: str
    """And of one with something wrong, of which the second line names the kind."""
    kinds: tuple[str, ...]
    """Kinds of what may be wrong."""
    new_tokens: int = 100
    """Most tokens of an answer."""

    @property
    def labels(self) -> tuple[str, ...]:
        """Classes, in the order of `read`."""
        return (UNKNOWN, self.good, *self.kinds)

    def read(self, answer: str) -> int:
        """Return the place of the class that an answer names. One that names several kinds at once is unknown, as in NeMo."""
        first, second = [*(line.strip() for line in answer.split("\n")), ""][:2]
        if first == self.good:
            return 1
        return self.labels.index(second) if first == self.bad and second in self.kinds else 0


def aegis() -> Answers:
    """Return what Aegis is asked.

    The prompt is that which the models were made with, kept as it is for their sake (``format_aegis`` of nemo_curator 0.9.0,
    ``utils/aegis_utils.py``; copyright 2024, NVIDIA CORPORATION; Apache License 2.0). Its policy is that of Aegis, 13 kinds of
    what may be wrong; its form that of Llama Guard.
    """
    before, _, after = Path(__file__).with_name("aegis_prompt.txt").read_text(encoding="utf-8").partition("{text}")
    return Answers(before, after, "safe", "unsafe", tuple(f"O{number}" for number in range(1, 14)))
