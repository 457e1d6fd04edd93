# SPDX-License-Identifier: Apache-2.0
"""Published classifiers as data: where a model is, how much of a text it reads, and what its output means.

A commit is pinned if one was published, so a changed model on the hub changes nothing here. An entry without a commit
is refused until the user names one. The documentation says where each commit was seen. See ``docs/models.md#classes``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from curator_df.models.answers import Answers, aegis

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
"""Of microsoft/deberta-v3-base."""
_MDEBERTA_REVISION = "a0484667b22365f84929a935b5e50a51f71f159d"
"""Of microsoft/mdeberta-v3-base."""
_LLAMA_GUARD_REVISION = "dfcfa3409b9994a4722d44e05f82e81ea73c5106"
"""Of meta-llama/LlamaGuard-7b."""
_DEFENSIVE_REVISION = "f54cb2302ee876705dc0f7df2288f442c034b2f3"


@dataclass(frozen=True)
class Classifier:
    """A model that classifies texts, and how to use it."""

    name: str
    """Its name here."""
    model: str
    """A folder, or the id of a model on the Hugging Face hub."""
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
    """For a model that is a language model's adapter and answers in words: a function that returns its prompt and answers."""
    adapter: str | None = None
    """For a model that consists of layers on the last token of a language model: the language model's adapter, which names it."""
    adapter_revision: str | None = None
    """Commit, tag or branch of the adapter."""
    base_revision: str | None = None
    """The same of the model on which this one stands, which its files name; with another ``revision=`` the latest."""
    revision: str | None = None
    """Commit, tag or branch. If there is none, users of the model on the hub must name one."""
    licence: str | None = None
    """Licence of the weights as stated by the publisher: an SPDX identifier, or the name of the agreement; None if not stated."""

    @property
    def classes(self) -> tuple[str, ...]:
        """Names of the classes that it gives, known without its files; empty if they are not.

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
"""High, Medium or Low."""
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
"""One of 26 domains, of English text."""
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
"""The same, of other languages too."""
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
"""One of 11 types of text, such as news or a review."""
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
"""How much mathematical reasoning there is in a text, from 0 to 5; the classes are the rounded score, as FineMath-4+ and -3+
are cut."""
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
"""How educational a text is, from 0 to 5."""
FINEWEB_MIXTRAL_EDU = Classifier(
    "FINEWEB_MIXTRAL_EDU",
    "nvidia/nemocurator-fineweb-mixtral-edu-classifier",
    "nemo_curator 0.9.0, classifiers/fineweb_edu.py",
    max_tokens=512,
    thresholds={"high_quality": 2.5, "low_quality": 0.0},
    clip=(0.0, 5.0),
    licence=NVIDIA_OPEN,
)
"""The same, learned from another model's judgements."""
FINEWEB_NEMOTRON_EDU = Classifier(
    "FINEWEB_NEMOTRON_EDU",
    "nvidia/nemocurator-fineweb-nemotron-4-edu-classifier",
    "nemo_curator 0.9.0, classifiers/fineweb_edu.py",
    max_tokens=512,
    thresholds={"high_quality": 2.5, "low_quality": 0.0},
    clip=(0.0, 5.0),
    licence=NVIDIA_OPEN,
)
"""The same, learned from a third model's judgements."""
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
"""Whether instructions with answers look as if they were to poison a model, from 0 to 1. It stands on LlamaGuard-7b, to which
access must be asked for: 27 GB of weights as float32 in each worker."""
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
"""Whether a text is safe, or which of 13 kinds of unsafe it is, O1 (violence) to O13 (needs caution): the wary of the two.
It stands on LlamaGuard-7b, as INSTRUCTION_DATA_GUARD does. Of its 4,096 tokens 100 are for the answer."""
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
"""The same, learned so that texts in doubt are safe."""
