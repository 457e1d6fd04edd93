# SPDX-License-Identifier: Apache-2.0
"""Published classifiers as data: the location of a model, how much of a text it reads, and the meaning of its output.

A commit is pinned if one was published, so a changed model on the hub has no effect here. An entry without a commit
is refused until the user gives one. The documentation lists the source of each commit. See ``docs/models.md#classes``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from curator_df.models.classifiers.generative_classifier import Answers, aegis
from curator_df.suggestions import no_such_name, suggests_names

__all__ = [
    "AEGIS_DEFENSIVE",
    "AEGIS_PERMISSIVE",
    "CONTENT_TYPE",
    "DOMAIN",
    "FINEMATH",
    "FINEWEB_EDU",
    "FINEWEB_MIXTRAL_EDU",
    "FINEWEB_NEMOTRON_EDU",
    "INSTRUCTION_DATA_GUARD",
    "MULTILINGUAL_DOMAIN",
    "QUALITY",
    "Classifier",
]

NVIDIA_OPEN = "NVIDIA Open Model License Agreement"
LLAMA_2 = "Llama 2 Community License Agreement"
_DOMAINS = (
    "Adult",
    "Arts_and_Entertainment",
    "Autos_and_Vehicles",
    "Beauty_and_Fitness",
    "Books_and_Literature",
    "Business_and_Industrial",
    "Computers_and_Electronics",
    "Finance",
    "Food_and_Drink",
    "Games",
    "Health",
    "Hobbies_and_Leisure",
    "Home_and_Garden",
    "Internet_and_Telecom",
    "Jobs_and_Education",
    "Law_and_Government",
    "News",
    "Online_Communities",
    "People_and_Society",
    "Pets_and_Animals",
    "Real_Estate",
    "Science",
    "Sensitive_Subjects",
    "Shopping",
    "Sports",
    "Travel_and_Transportation",
)
_CONTENT_TYPES = (
    "Product/Company/Organization/Personal Websites",
    "Explanatory Articles",
    "News",
    "Blogs",
    "MISC",
    "Boilerplate Content",
    "Analytical Exposition",
    "Online Comments",
    "Reviews",
    "Books and Literature",
    "Conversational",
)
DEBERTA_REVISION = "8ccc9b6f36199bec6961081d44eb72fb3f7353f3"
"""Commit of microsoft/deberta-v3-base."""
_MDEBERTA_REVISION = "a0484667b22365f84929a935b5e50a51f71f159d"
"""Commit of microsoft/mdeberta-v3-base."""
_LLAMA_GUARD_REVISION = "dfcfa3409b9994a4722d44e05f82e81ea73c5106"
"""Commit of meta-llama/LlamaGuard-7b."""
_DEFENSIVE_REVISION = "f54cb2302ee876705dc0f7df2288f442c034b2f3"


@suggests_names
@dataclass(frozen=True)
class Classifier:
    """Model that classifies texts, and its use.

    See Also
    --------
    add_class, model
    """

    name: str
    """Name of the classifier in curator_df."""
    model: str
    """Folder, or ID of a model on the Hugging Face hub."""
    source: str
    """Publication that describes its use."""
    max_tokens: int | None = None
    """Tokens of a text to read; None for the model's limit, but at most 512."""
    max_chars: int | None = None
    """Characters of a text to tokenize; None for 16 per token."""
    center_chars: int | None = None
    """Characters to read on either side of the middle of a text; None for the text from its beginning."""
    labels: tuple[str, ...] = ()
    """Names of its classes as published, for a model with an output for each. The model's own files decide."""
    thresholds: Mapping[str, float] | None = None
    """For a model with one output: the lowest score of each class, from the highest to the lowest."""
    clip: tuple[float, float] | None = None
    """For a model with one output: the bounds to which the score is clipped."""
    answers: Callable[[], Answers] | None = None
    """For a generative classifier, an adapter of a language model: a function that returns its prompt and answers."""
    adapter: str | None = None
    """For a model that consists of layers on the last token of a language model: the language model's adapter, which names it."""
    adapter_revision: str | None = None
    """Commit, tag or branch of the adapter."""
    base_revision: str | None = None
    """Commit, tag or branch of the base model that the model's files name; the latest with another ``revision=``."""
    revision: str | None = None
    """Commit, tag or branch. If there is none, users of the model on the hub must name one."""
    licence: str | None = None
    """License of the weights as stated by the publisher: an SPDX identifier, or the name of the agreement; None if not stated."""

    @property
    def classes(self) -> tuple[str, ...]:
        """Names of the classes that are known without the model's files; empty if unknown.

        Examples
        --------
        >>> QUALITY.classes, FINEWEB_EDU.classes
        (('High', 'Medium', 'Low'), ('high_quality', 'low_quality'))
        """
        if self.answers is not None:
            return self.answers().labels
        return self.labels if self.thresholds is None else tuple(self.thresholds)


QUALITY = Classifier(
    "QUALITY",
    "nvidia/quality-classifier-deberta",
    "nemo_curator 0.9.0, classifiers/quality.py",
    max_tokens=1024,
    max_chars=6000,
    labels=("High", "Medium", "Low"),
    revision="c07a8e4e56b6194561b20d00df910e62c8bc1d18",
    base_revision=DEBERTA_REVISION,
    licence="Apache-2.0",
)
"""Quality of a text: High, Medium or Low."""
DOMAIN = Classifier(
    "DOMAIN",
    "nvidia/domain-classifier",
    "nemo_curator 0.9.0, classifiers/domain.py",
    max_tokens=512,
    max_chars=2000,
    labels=_DOMAINS,
    revision="41b2af615a564bec3d155ea695d6ee03aa1919a7",
    base_revision=DEBERTA_REVISION,
    licence="Apache-2.0",
)
"""Domain of an English text, one of 26."""
MULTILINGUAL_DOMAIN = Classifier(
    "MULTILINGUAL_DOMAIN",
    "nvidia/multilingual-domain-classifier",
    "nemo_curator 0.9.0, classifiers/domain.py",
    max_tokens=512,
    max_chars=2000,
    labels=_DOMAINS,
    revision="2e5a172bc1066a6d75127d29ba59a39013a40133",
    base_revision=_MDEBERTA_REVISION,
    licence=NVIDIA_OPEN,
)
"""Domain of a text in any of several languages, one of 26."""
CONTENT_TYPE = Classifier(
    "CONTENT_TYPE",
    "nvidia/content-type-classifier-deberta",
    "nemo_curator 0.9.0, classifiers/content_type.py",
    max_tokens=1024,
    max_chars=5000,
    labels=_CONTENT_TYPES,
    revision="00351af9d8539131e8b65253831aa87ddd544701",
    base_revision=DEBERTA_REVISION,
    licence=NVIDIA_OPEN,
)
"""Type of a text, one of 11, such as news or a review."""
FINEMATH = Classifier(
    "FINEMATH",
    "HuggingFaceTB/finemath-classifier",
    "Allal et al. 2025, https://arxiv.org/abs/2502.02737; nemo_curator 1.4.0, stages/math/classifiers/finemath.py",
    max_tokens=512,
    center_chars=10_000,
    thresholds={"4_or_more": 3.5, "3": 2.5, "less": 0.0},
    clip=(0.0, 5.0),
    revision="bd0b0e330750ccaafb16c47066f875b3fcb707c3",
    licence="MIT",
)
"""Amount of mathematical reasoning in a text, from 0 to 5; the classes are the rounded score, the basis of FineMath-4+ and
-3+."""
FINEWEB_EDU = Classifier(
    "FINEWEB_EDU",
    "HuggingFaceFW/fineweb-edu-classifier",
    "Penedo et al. 2024, https://arxiv.org/abs/2406.17557; nemo_curator 0.9.0, classifiers/fineweb_edu.py",
    max_tokens=512,
    thresholds={"high_quality": 2.5, "low_quality": 0.0},
    clip=(0.0, 5.0),
    revision="284663cbb2dabf9bda30d8f8cc49601251ee1631",
    licence="Apache-2.0",
)
"""Educational value of a text, from 0 to 5."""
FINEWEB_MIXTRAL_EDU = Classifier(
    "FINEWEB_MIXTRAL_EDU",
    "nvidia/nemocurator-fineweb-mixtral-edu-classifier",
    "nemo_curator 0.9.0, classifiers/fineweb_edu.py",
    max_tokens=512,
    thresholds={"high_quality": 2.5, "low_quality": 0.0},
    clip=(0.0, 5.0),
    licence=NVIDIA_OPEN,
)
"""Educational value of a text, learned from the judgments of Mixtral."""
FINEWEB_NEMOTRON_EDU = Classifier(
    "FINEWEB_NEMOTRON_EDU",
    "nvidia/nemocurator-fineweb-nemotron-4-edu-classifier",
    "nemo_curator 0.9.0, classifiers/fineweb_edu.py",
    max_tokens=512,
    thresholds={"high_quality": 2.5, "low_quality": 0.0},
    clip=(0.0, 5.0),
    licence=NVIDIA_OPEN,
)
"""Educational value of a text, learned from the judgments of Nemotron."""
INSTRUCTION_DATA_GUARD = Classifier(
    "INSTRUCTION_DATA_GUARD",
    "nvidia/instruction-data-guard",
    "nemo_curator 0.9.0, classifiers/aegis.py",
    max_tokens=4096,
    max_chars=6000,
    thresholds={"poisoned": 0.5, "clean": 0.0},
    adapter="nvidia/Aegis-AI-Content-Safety-LlamaGuard-Defensive-1.0",
    adapter_revision=_DEFENSIVE_REVISION,
    revision="52b58d8f0dfb6378256783434852131969f5b2ba",
    base_revision=_LLAMA_GUARD_REVISION,
    licence=NVIDIA_OPEN,
)
"""Score from 0 to 1 of whether instructions with answers look as if they were meant to poison a model. It is based on
LlamaGuard-7b, for which access must be requested: 27 GB of weights as float32 in each worker."""
AEGIS_DEFENSIVE = Classifier(
    "AEGIS_DEFENSIVE",
    "nvidia/Aegis-AI-Content-Safety-LlamaGuard-Defensive-1.0",
    "Ghosh et al. 2024, https://arxiv.org/abs/2404.05993; nemo_curator 0.9.0, classifiers/aegis.py",
    max_tokens=3996,
    max_chars=6000,
    answers=aegis,
    revision=_DEFENSIVE_REVISION,
    base_revision=_LLAMA_GUARD_REVISION,
    licence=LLAMA_2,
)
"""Safety of a text: safe, or one of 13 kinds of unsafe, O1 (violence) to O13 (needs caution); the stricter of the two Aegis
models. It is based on LlamaGuard-7b, like INSTRUCTION_DATA_GUARD. 100 of its 4,096 tokens are for the answer."""
AEGIS_PERMISSIVE = Classifier(
    "AEGIS_PERMISSIVE",
    "nvidia/Aegis-AI-Content-Safety-LlamaGuard-Permissive-1.0",
    "Ghosh et al. 2024, https://arxiv.org/abs/2404.05993; nemo_curator 0.9.0, classifiers/aegis.py",
    max_tokens=3996,
    max_chars=6000,
    answers=aegis,
    revision="b30b989901b4d129c231b0c55fd8c7cc936c38b6",
    base_revision=_LLAMA_GUARD_REVISION,
    licence=LLAMA_2,
)
"""Safety of a text, like AEGIS_DEFENSIVE, but trained so that texts in doubt are safe."""

if not TYPE_CHECKING:  # with it, a type checker would take any name for a public one
    __getattr__ = no_such_name("curator_df.classifiers", __all__)
