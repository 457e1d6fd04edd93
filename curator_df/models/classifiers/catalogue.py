# SPDX-License-Identifier: Apache-2.0
"""Published classifiers as data: the location of a model, how much of a text it reads, and the meaning of its output.

A commit is pinned if one was published, so a changed model on the hub has no effect here. An entry without a commit
is refused until the user gives one. The documentation lists the source of each commit. See ``docs/models.md#classes``.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from curator_df.errors import ParameterError
from curator_df.models.classifiers.generative_classifier import Answers, aegis
from curator_df.suggestions import did_you_mean, no_such_name, suggests_names

__all__ = [
    "AEGIS_DEFENSIVE",
    "AEGIS_PERMISSIVE",
    "CONTENT_TYPE",
    "DCLM",
    "DOLMA_3_QUALITY",
    "DOLMA_3_TOPIC",
    "DOMAIN",
    "FINEMATH",
    "FINEPDFS_DCLM",
    "FINEPDFS_EDU",
    "FINEPDFS_OCR_QUALITY",
    "FINEWEB_EDU",
    "FINEWEB_MIXTRAL_EDU",
    "FINEWEB_NEMOTRON_EDU",
    "GLOTLID",
    "INSTRUCTION_DATA_GUARD",
    "MULTILINGUAL_DOMAIN",
    "OPENLID",
    "QUALITY",
    "WEBORGANIZER_FORMAT",
    "WEBORGANIZER_TOPIC",
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
_TOPICS = (
    "Adult",
    "Art & Design",
    "Software Dev.",
    "Crime & Law",
    "Education & Jobs",
    "Hardware",
    "Entertainment",
    "Social Life",
    "Fashion & Beauty",
    "Finance & Business",
    "Food & Dining",
    "Games",
    "Health",
    "History",
    "Home & Hobbies",
    "Industrial",
    "Literature",
    "Politics",
    "Religion",
    "Science & Tech.",
    "Software",
    "Sports & Fitness",
    "Transportation",
    "Travel",
)
_FORMATS = (
    "Academic Writing",
    "Content Listing",
    "Creative Writing",
    "Customer Support",
    "Comment Section",
    "FAQ",
    "Truncated",
    "Knowledge Article",
    "Legal Notices",
    "Listicle",
    "News Article",
    "Nonfiction Writing",
    "About (Org.)",
    "News (Org.)",
    "About (Pers.)",
    "Personal Blog",
    "Product Page",
    "Q&A Forum",
    "Spam / Ads",
    "Structured Data",
    "Documentation",
    "Audio Transcript",
    "Tutorial",
    "User Review",
)
_WEBORGANIZER = "Wettig et al. 2025, https://arxiv.org/abs/2502.10341; the model card"
_FINEPDFS = "the model card; https://github.com/huggingface/finepdfs"
_NAME = re.compile(r"[A-Z][A-Z0-9]*(_[A-Z0-9]+)*")
_OF_SIX = {"5": 4.5, "4": 3.5, "3": 2.5, "2": 1.5, "1": 0.5, "0": 0.0}
"""Lowest scores of the rounded scores from 0 to 5."""
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
    license: str | None = None
    """License of the weights as stated by the publisher: an SPDX identifier, or the name of the agreement; None if not stated."""
    file: str | None = None
    """For a fastText model: the path of its file in the repository, or in the folder."""

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
    license="Apache-2.0",
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
    license="Apache-2.0",
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
    license=NVIDIA_OPEN,
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
    license=NVIDIA_OPEN,
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
    license="MIT",
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
    license="Apache-2.0",
)
"""Educational value of a text, from 0 to 5."""
FINEWEB_MIXTRAL_EDU = Classifier(
    "FINEWEB_MIXTRAL_EDU",
    "nvidia/nemocurator-fineweb-mixtral-edu-classifier",
    "nemo_curator 0.9.0, classifiers/fineweb_edu.py",
    max_tokens=512,
    thresholds={"high_quality": 2.5, "low_quality": 0.0},
    clip=(0.0, 5.0),
    license=NVIDIA_OPEN,
)
"""Educational value of a text, learned from the judgments of Mixtral."""
FINEWEB_NEMOTRON_EDU = Classifier(
    "FINEWEB_NEMOTRON_EDU",
    "nvidia/nemocurator-fineweb-nemotron-4-edu-classifier",
    "nemo_curator 0.9.0, classifiers/fineweb_edu.py",
    max_tokens=512,
    thresholds={"high_quality": 2.5, "low_quality": 0.0},
    clip=(0.0, 5.0),
    license=NVIDIA_OPEN,
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
    license=NVIDIA_OPEN,
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
    license=LLAMA_2,
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
    license=LLAMA_2,
)
"""Safety of a text, like AEGIS_DEFENSIVE, but trained so that texts in doubt are safe."""

DCLM = Classifier(
    "DCLM",
    "mlfoundations/fasttext-oh-eli5",
    "Li et al. 2024, https://arxiv.org/abs/2406.11794; the model card; mlfoundations/dclm, baselines/README.md",
    file="openhermes_reddit_eli5_vs_rw_v2_bigram_200k_train.bin",
    max_chars=1_000_000,
    labels=("hq", "cc"),
    revision="cd8b714a90f2dbcd3b02cf5fc972e5d7c7f4f107",
    license="MIT",
)
"""Quality of a text: hq (like instructions and answers to questions) or cc (Common Crawl). DCLM-Baseline keeps texts whose
score of hq is 0.018112 or more. A fastText model of 2.4 GB."""
DOLMA_3_QUALITY = Classifier(
    "DOLMA_3_QUALITY",
    "allenai/dolma3-fasttext-quality-classifier",
    "Olmo 3 2025, https://arxiv.org/abs/2512.13961; allenai/datamap-rs, mixing_classifiers.yaml",
    file="model.bin",
    max_chars=1_000_000,
    labels=("1", "0"),
    revision="bb89085994fef638ca8dc2ca25169db328e314bb",
)
"""Quality of a text: 1 (high) or 0. A fastText model of 4.3 GB."""
DOLMA_3_TOPIC = Classifier(
    "DOLMA_3_TOPIC",
    "allenai/dolma3-fasttext-weborganizer-topic-classifier",
    "Olmo 3 2025, https://arxiv.org/abs/2512.13961; allenai/datamap-rs, mixing_classifiers.yaml",
    file="model.bin",
    max_chars=1_000_000,
    revision="005a0da7d35651eb6f54553171f146bd62c5cdd2",
    license="Apache-2.0",
)
"""Topic of a web page, one of WebOrganizer's 24, whose names are in the model. A fastText model of 4.2 GB."""
WEBORGANIZER_TOPIC = Classifier(
    "WEBORGANIZER_TOPIC",
    "WebOrganizer/TopicClassifier-NoURL",
    _WEBORGANIZER,
    max_tokens=8192,
    labels=_TOPICS,
    revision="8f60a8f97177f5664a81ad1c2789412fbb38351d",
)
"""Topic of a web page by its text, one of 24."""
WEBORGANIZER_FORMAT = Classifier(
    "WEBORGANIZER_FORMAT",
    "WebOrganizer/FormatClassifier-NoURL",
    _WEBORGANIZER,
    max_tokens=8192,
    labels=_FORMATS,
    revision="74d5efb924e1843e84b28b59c26f6ceaa873dc16",
)
"""Format of a web page by its text, one of 24, such as a tutorial or a product page."""
FINEPDFS_EDU = Classifier(
    "FINEPDFS_EDU",
    "HuggingFaceFW/finepdfs_edu_classifier_v2_eng_Latn",
    _FINEPDFS,
    max_tokens=2048,
    max_chars=10_000,
    thresholds=_OF_SIX,
    clip=(0.0, 5.0),
    revision="90ddef285f67230389057c14b2f6bbfeb70d40ea",
    license="Apache-2.0",
)
"""Educational value of an English document, from 0 to 5, including texts for undergraduates and papers (ModernBERT)."""
FINEPDFS_DCLM = Classifier(
    "FINEPDFS_DCLM",
    "HuggingFaceFW/finepdfs_dclm_classifier_eng_Latn",
    _FINEPDFS,
    max_tokens=2048,
    max_chars=10_000,
    thresholds=_OF_SIX,
    clip=(0.0, 5.0),
)
"""Value of an English document as an instruction, or as an answer to questions, from 0 to 5 (ModernBERT)."""
FINEPDFS_OCR_QUALITY = Classifier(
    "FINEPDFS_OCR_QUALITY",
    "HuggingFaceFW/finepdfs_ocr_quality_classifier_eng_Latn",
    _FINEPDFS,
    max_tokens=2048,
    max_chars=10_000,
    thresholds={"3": 2.5, "2": 1.5, "1": 0.5, "0": 0.0},
    clip=(0.0, 3.0),
    revision="810bdb81de083e05d0abdb466f4498b3a34224e3",
    license="Apache-2.0",
)
"""Quality of the extracted text of an English document, from 0 (unreadable) to 3 (clean) (ModernBERT)."""
GLOTLID = Classifier(
    "GLOTLID",
    "cis-lmu/glotlid",
    "Kargaran et al. 2023, https://arxiv.org/abs/2310.16248; the model card",
    file="model_v3.bin",
    revision="85cd6716494360367b75f642b5bc78667605d0b4",
    license="Apache-2.0",
)
"""Language and script of a text, one of 2,102 such as eng_Latn. A fastText model of 1.7 GB, for `add_language` and
`keep_language`."""
OPENLID = Classifier(
    "OPENLID",
    "laurievb/OpenLID",
    "Burchell et al. 2023, https://arxiv.org/abs/2305.13820; the model card",
    file="model.bin",
    license="GPL-3.0",
)
"""Language and script of a text, one of 201 such as eng_Latn. A fastText model, for `add_language` and `keep_language`."""


def named(value: Any) -> Any:
    """Return the entry of a name in the catalog; any other value unchanged, and also the name of an existing file or folder.

    Raises
    ------
    ParameterError
        If it is a name like those of the catalog, which has no such entry.

    Examples
    --------
    >>> named("FINEWEB_EDU") is FINEWEB_EDU, named("organization/model")
    (True, 'organization/model')
    """
    if not isinstance(value, str) or _NAME.fullmatch(value) is None or os.path.exists(value):
        return value
    entry = globals().get(value) if value in __all__ else None
    if entry is None:
        names = [name for name in __all__ if name != "Classifier"]
        hint = did_you_mean(value, names) or f" The classifiers are: {', '.join(names)}"
        raise ParameterError(
            f"{value!r} is neither the name of a classifier in curator_df.classifiers nor an existing file or folder. "
            f"Correct it.{hint}"
        )
    return entry


if not TYPE_CHECKING:  # with it, a type checker would take any name for a public one
    __getattr__ = no_such_name("curator_df.classifiers", __all__)
