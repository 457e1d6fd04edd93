# SPDX-License-Identifier: Apache-2.0
"""Generative classifiers: their prompts, and the class that an answer names.

References
----------
Ghosh et al. 2024 (Aegis), https://arxiv.org/abs/2404.05993; Inan et al. 2023 (Llama Guard), https://arxiv.org/abs/2312.06674.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

UNKNOWN = "unknown"
"""Class of a text whose answer names no class."""


@dataclass(frozen=True)
class Answers:
    r"""Prompt for a text, and interpretation of the answer.

    Examples
    --------
    >>> asked = Answers("Is it safe? ", " [/INST]", "safe", "unsafe", ("O1", "O2"))
    >>> [asked.labels[asked.read(answer)] for answer in ("safe", "unsafe\nO2", "unsafe\nO1,O2", "no idea")]
    ['safe', 'O2', 'unknown', 'unknown']
    """

    before: str
    """Prompt before the text."""
    after: str
    """Prompt after the text. Neither part is truncated."""
    good: str
    """First line of the answer for an unproblematic text."""
    bad: str
    """First line of the answer for a problematic text; its second line names the kind."""
    kinds: tuple[str, ...]
    """Kinds of problems."""
    new_tokens: int = 100
    """Maximum number of tokens of an answer."""

    @property
    def labels(self) -> tuple[str, ...]:
        """Classes, in the order of `read`."""
        return (UNKNOWN, self.good, *self.kinds)

    def read(self, answer: str) -> int:
        """Return the position of the class that an answer names. An answer with several kinds is unknown, as in NeMo."""
        first, second = [*(line.strip() for line in answer.split("\n")), ""][:2]
        if first == self.good:
            return 1
        return self.labels.index(second) if first == self.bad and second in self.kinds else 0


def aegis() -> Answers:
    """Return the prompt and answers of Aegis.

    The prompt is the one with which the models were trained, so it is unchanged (``format_aegis`` of nemo_curator 0.9.0,
    ``utils/aegis_utils.py``; copyright 2024, NVIDIA CORPORATION; Apache License 2.0). Its policy is that of Aegis, with 13 kinds
    of problems; its format is that of Llama Guard.
    """
    before, _, after = Path(__file__).with_name("aegis_prompt.txt").read_text(encoding="utf-8").partition("{text}")
    return Answers(before, after, "safe", "unsafe", tuple(f"O{number}" for number in range(1, 14)))
