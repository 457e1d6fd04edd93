# SPDX-License-Identifier: Apache-2.0
"""Names, places and other entities by presidio and a spaCy pipeline, as a value for `redact_pii`.

A worker loads a pipeline once for a run. Nothing is downloaded: presidio's engine gets an already loaded pipeline, and its
recognizer of e-mail addresses the list of top-level domains that comes with tldextract.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
import json
import os
import re
import threading
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from curator_df.arguments import absolute, choose, strings_of
from curator_df.core.planning.recorded_recipe import recipe_value
from curator_df.errors import CorruptFileError, InputError, ParameterError
from curator_df.extras import require_package
from curator_df.memory.process_cache import cached
from curator_df.models.files import digest_of
from curator_df.models.text_model import RUNTIME_BYTES
from curator_df.suggestions import suggests_names

LABELS = {
    "PER": "PERSON",
    "PERSON": "PERSON",
    "FAC": "LOCATION",
    "GPE": "LOCATION",
    "LOC": "LOCATION",
    "LOCATION": "LOCATION",
    "ORG": "ORGANIZATION",
    "ORGANIZATION": "ORGANIZATION",
    "DATE": "DATE_TIME",
    "TIME": "DATE_TIME",
    "NORP": "NRP",
    "NRP": "NRP",
}
"""Presidio's entity for each label of a spaCy pipeline, as in its own configuration (conf/spacy.yaml); presidio ignores
organizations, which curator_df finds if they are requested."""
OF_PIPELINE = tuple(sorted(set(LABELS.values())))
"""Entities that the pipeline finds."""
RECOGNIZERS = {
    "ABA_ROUTING_NUMBER": "AbaRoutingRecognizer",
    "AU_ABN": "AuAbnRecognizer",
    "AU_ACN": "AuAcnRecognizer",
    "AU_MEDICARE": "AuMedicareRecognizer",
    "AU_TFN": "AuTfnRecognizer",
    "CREDIT_CARD": "CreditCardRecognizer",
    "CRYPTO": "CryptoRecognizer",
    "DATE_TIME": "DateRecognizer",
    "EMAIL_ADDRESS": "EmailRecognizer",
    "ES_NIE": "EsNieRecognizer",
    "ES_NIF": "EsNifRecognizer",
    "FI_PERSONAL_IDENTITY_CODE": "FiPersonalIdentityCodeRecognizer",
    "IBAN_CODE": "IbanRecognizer",
    "IN_AADHAAR": "InAadhaarRecognizer",
    "IN_PAN": "InPanRecognizer",
    "IN_PASSPORT": "InPassportRecognizer",
    "IN_VEHICLE_REGISTRATION": "InVehicleRegistrationRecognizer",
    "IN_VOTER": "InVoterRecognizer",
    "IP_ADDRESS": "IpRecognizer",
    "IT_DRIVER_LICENSE": "ItDriverLicenseRecognizer",
    "IT_FISCAL_CODE": "ItFiscalCodeRecognizer",
    "IT_IDENTITY_CARD": "ItIdentityCardRecognizer",
    "IT_PASSPORT": "ItPassportRecognizer",
    "IT_VAT_CODE": "ItVatCodeRecognizer",
    "KR_RRN": "KrRrnRecognizer",
    "MEDICAL_LICENSE": "MedicalLicenseRecognizer",
    "PHONE_NUMBER": "PhoneRecognizer",
    "PL_PESEL": "PlPeselRecognizer",
    "SG_NRIC_FIN": "SgFinRecognizer",
    "SG_UEN": "SgUenRecognizer",
    "UK_NHS": "NhsRecognizer",
    "UK_NINO": "UkNinoRecognizer",
    "URL": "UrlRecognizer",
    "US_BANK_NUMBER": "UsBankRecognizer",
    "US_DRIVER_LICENSE": "UsLicenseRecognizer",
    "US_ITIN": "UsItinRecognizer",
    "US_PASSPORT": "UsPassportRecognizer",
    "US_SSN": "UsSsnRecognizer",
}
"""Presidio's pattern recognizers, those of its release 2.2.360 and later."""
ENTITIES = tuple(sorted({*OF_PIPELINE, *RECOGNIZERS}))
"""All entities that may be requested."""
Entity = tuple[int, int, str]
"""Entity: first character, the one after the last, and presidio's name."""
LIBRARY_BYTES = 100_000_000
"""Bytes of presidio and spaCy: 98 MB were measured after importing both into an empty process, 57 MB into one with
distributed."""
PIPELINE_BYTES = 40_000_000
PIPELINE_FACTOR = 1.6
"""Memory multiplier of a loaded pipeline, as a multiple of its files: en_core_web_sm (15 MB) took 58 MB, pipelines with
vectors of 77 MB took 133 MB, and those of 261 MB took 404 MB."""
CALL_BYTES = 60_000_000
"""Bytes that the analysis of a piece needs (`ops.cleaning.redaction.PIECE_BYTES`)."""
_FACTORY = re.compile(r'^factory\s*=\s*"([^"]*(?:transformer|llm)[^"]*)"', re.MULTILINE)


@dataclass(frozen=True)
class SpacyPipeline:
    """Pipeline of spaCy in a folder."""

    name: str = field(metadata={"identity": False})
    """Name as the user gave it."""
    folder: str = field(metadata={"identity": False})
    """Folder of the pipeline, the same for all workers."""
    digest: str
    """Digest (BLAKE2b) of the files."""
    size_bytes: int
    """Size of the files."""
    language: str
    """Language of the pipeline, such as ``en``."""

    @property
    def held_bytes(self) -> int:
        """Bytes that a worker holds once."""
        return PIPELINE_BYTES + int(PIPELINE_FACTOR * self.size_bytes)


@suggests_names
@dataclass(frozen=True)
class Presidio:
    """Entities that presidio finds for `redact_pii`; created by `presidio`.

    See Also
    --------
    presidio, redact_pii
    """

    entities: tuple[str, ...]
    """Entity names of presidio, sorted."""
    pipeline: SpacyPipeline
    """The pipeline that finds names and places, and the words around pattern matches."""
    min_score: float
    """Lowest score, 0 to 1."""
    versions: tuple[str, ...] = field(repr=False)
    """Versions of presidio and spaCy, because other versions may find other entities."""

    @property
    def held_bytes(self) -> int:
        """Memory that a worker holds once."""
        return sum(self.libraries.values()) + self.pipeline.held_bytes

    @property
    def libraries(self) -> dict[str, int]:
        """Part of that memory that stays after the run; spaCy imports torch if it is installed."""
        torch = {"torch": RUNTIME_BYTES} if importlib.util.find_spec("torch") else {}
        return {"presidio": LIBRARY_BYTES, **torch}

    @property
    def shared(self) -> dict[str, int]:
        """Part of that memory that other steps with this pipeline share."""
        return {f"spaCy {self.pipeline.digest}": self.pipeline.held_bytes}

    @property
    def call_bytes(self) -> int:
        """Memory that a call holds for a piece."""
        return CALL_BYTES

    def find(self, document: str) -> list[Entity]:
        """Return the entities of a document, in order and without overlaps."""
        of = self.pipeline
        return loaded_analyzer(of.folder, of.digest, of.language, self.entities, self.min_score).find(document)


@recipe_value.register(Presidio)
def _recipe_of_presidio(finder: Presidio) -> dict[str, Any]:
    """Return the call that makes it, as a recipe file has it."""
    call = {"entities": list(finder.entities), "model": finder.pipeline.name, "min_score": finder.min_score}
    return {"presidio": call}


def presidio(
    *,
    entities: str | Collection[str] = ("PERSON", "LOCATION"),
    model: str | os.PathLike[str] = "en_core_web_lg",
    min_score: float = 0.5,
) -> Presidio:
    """Configure `redact_pii` to find names, places and the like with presidio and a spaCy pipeline.

    Parameters
    ----------
    entities : str or collection of str, default ("PERSON", "LOCATION")
        Entities to find, by presidio's names: those of the pipeline are ``DATE_TIME``, ``LOCATION``, ``NRP``,
        ``ORGANIZATION`` and ``PERSON``; those of presidio's patterns include ``URL``, ``CRYPTO`` and ``US_PASSPORT``.
        The error message for an unknown name lists all.
    model : str or path, default "en_core_web_lg"
        A spaCy pipeline: the name of an installed one, or a folder written by ``nlp.to_disk`` that all workers see
        under this path. Its language must be that of the texts.
    min_score : float, default 0.5
        Lowest score of presidio, 0 to 1. Entities found by the pipeline have 0.85.

    Returns
    -------
    Presidio
        Value for ``presidio=`` of `redact_pii`.

    Raises
    ------
    MissingExtraError
        If presidio or spaCy is not installed.
    InputError
        If the pipeline is not installed here. Nothing is downloaded.
    CorruptFileError
        If its ``meta.json`` cannot be read.
    ParameterError
        If ``entities`` is empty or has an unknown name, or one for which the pipeline has no label; if ``min_score`` is
        not between 0 and 1; or if the pipeline contains a transformer or a language model, whose memory would not be in
        the plan.

    See Also
    --------
    redact_pii

    Notes
    -----
    Computes: no; it reads the pipeline's files once for their digest.

    This function imports neither spaCy nor presidio. Only the recognizers of the given entities are loaded, in workers,
    which download nothing. presidio has no street addresses (``ADDRESS`` of NeMo Curator 0.9); ``LOCATION`` covers the
    towns and countries in them.

    References
    ----------
    .. [1] https://microsoft.github.io/presidio/supported_entities/
    .. [2] https://spacy.io/models

    Examples
    --------
    >>> people = cdf.presidio(entities="PERSON", model="en_core_web_lg")  # doctest: +SKIP
    >>> docs.pipe(cdf.redact_pii, presidio=people, replacement="hash", key="secret")  # doctest: +SKIP
    """
    for package in ("presidio_analyzer", "spacy"):
        require_package("presidio", package, "presidio")
    asked = strings_of("presidio", "entities", entities)
    if not asked:
        raise ParameterError("presidio: entities is empty. Use at least one, such as 'PERSON'")
    for name in asked:
        choose("presidio", "entities", name, ENTITIES)
    if isinstance(min_score, bool) or not isinstance(min_score, int | float) or not 0 <= min_score <= 1:
        raise ParameterError(f"presidio: min_score={min_score!r} must be from 0 to 1")
    versions = tuple(importlib.metadata.version(package) for package in ("presidio-analyzer", "spacy"))
    wanted = tuple(sorted(set(asked)))
    return Presidio(wanted, _find_pipeline(os.fspath(model), wanted), float(min_score), versions)


def _find_pipeline(name: str, entities: tuple[str, ...]) -> SpacyPipeline:
    folder = _folder(name)
    meta = _meta(folder)
    if found := _FACTORY.search((folder / "config.cfg").read_text(encoding="utf-8")):
        raise ParameterError(
            f"presidio: the pipeline {name!r} has a component {found[1]!r}, whose memory curator_df cannot plan. Use a "
            "pipeline without it, such as 'en_core_web_lg'"
        )
    labels = {label for of_one in meta.get("labels", {}).values() for label in of_one if isinstance(label, str)}
    can_find = {LABELS[label] for label in labels if label in LABELS}
    if lacking := [each for each in entities if each not in RECOGNIZERS and each not in can_find]:
        raise ParameterError(
            f"presidio: the pipeline {name!r} does not detect {' or '.join(lacking)}. Remove this from entities=, or use "
            f"another pipeline with model=. The labels of this one are {', '.join(sorted(labels)) or 'none'}"
        )
    files = sorted(path for path in folder.rglob("*") if path.is_file() and path.suffix != ".pyc")
    size_bytes = sum(path.stat().st_size for path in files)
    return SpacyPipeline(name, str(folder), digest_of(files), size_bytes, str(meta.get("lang", "en")))


def _folder(name: str) -> Path:
    """Return the folder of a pipeline's ``config.cfg``."""
    folder = Path(absolute(name))
    if not folder.is_dir() and name.isidentifier():
        package = importlib.util.find_spec(name)
        if package is not None and package.origin is not None:
            inside = Path(package.origin).parent
            meta = _meta(inside)
            folder = inside / f"{meta.get('lang')}_{meta.get('name')}-{meta.get('version')}"
    if not (folder / "config.cfg").is_file():
        how = f"python -m spacy download {name}, or " if name.isidentifier() else ""
        raise InputError(
            f"presidio: the spaCy pipeline {name!r} is not installed, and curator_df does not download it. Use {how}a "
            "folder that nlp.to_disk wrote"
        )
    return folder


def _meta(folder: Path) -> dict[str, Any]:
    try:
        found = json.loads((folder / "meta.json").read_bytes())
    except (OSError, ValueError) as exc:
        raise CorruptFileError(
            f"presidio: {folder / 'meta.json'} cannot be read: {exc}. Install or copy the spaCy pipeline again"
        ) from exc
    return found if isinstance(found, dict) else {}


class LoadedPipeline:
    """Pipeline of spaCy in this process, which only one thread uses at once.

    The strings that a pipeline sees are never released, unless it works in a memory zone, and a zone applies to all threads.
    """

    def __init__(self, folder: str) -> None:
        spacy: Any = importlib.import_module("spacy")
        if not Path(folder).is_dir():
            raise InputError(
                f"the spaCy pipeline {folder!r} is not on this machine. Put it in a folder that all workers can read"
            )
        try:
            self.nlp: Any = spacy.load(folder)
        except (OSError, ValueError, KeyError, ImportError) as exc:
            raise CorruptFileError(
                f"the spaCy pipeline {folder} cannot be loaded by this release of spaCy: {exc}. Install the release of the "
                "pipeline that matches this release of spaCy, or copy the pipeline again"
            ) from exc
        self.lock = threading.Lock()


class LoadedAnalyzer:
    """Analyzer of presidio with some recognizers, on a pipeline."""

    def __init__(self, pipeline: LoadedPipeline, language: str, entities: Sequence[str], min_score: float) -> None:
        self._pipeline, self._language, self._min_score = pipeline, language, min_score
        self._entities = list(entities)
        self._analyzer = _analyzer(pipeline.nlp, language, entities)

    def find(self, text: str) -> list[Entity]:
        """Return the findings in a text; of two overlapping ones, that with the higher score, then the longer, then the first."""
        with self._pipeline.lock, self._pipeline.nlp.memory_zone():
            results = self._analyzer.analyze(
                text, language=self._language, entities=self._entities, score_threshold=self._min_score
            )
            found = [(one.start, one.end, one.entity_type, one.score) for one in results]
        return apart(found)


def apart(found: Sequence[tuple[int, int, str, float]]) -> list[Entity]:
    """Return the spans that remain after resolving overlaps by score, in order.

    Examples
    --------
    >>> apart([(0, 3, "PERSON", 0.85), (0, 9, "PERSON", 0.85), (8, 12, "URL", 0.5)])
    [(0, 9, 'PERSON')]
    """
    chosen: list[Entity] = []
    for start, stop, name, _ in sorted(found, key=lambda one: (-one[3], one[0] - one[1], one[0], one[2])):
        if start < stop and not any(start < other_stop and other < stop for other, other_stop, _ in chosen):
            chosen.append((start, stop, name))
    return sorted(chosen)


def loaded_analyzer(
    folder: str, digest: str, language: str, entities: tuple[str, ...], min_score: float
) -> LoadedAnalyzer:
    """Return an analyzer, whose pipeline this process loads once for a run."""

    def make() -> LoadedAnalyzer:
        pipeline = cached(("spaCy", digest), lambda: LoadedPipeline(folder))
        return LoadedAnalyzer(pipeline, language, entities, min_score)

    return cached(("presidio", digest, language, entities, min_score), make)


def _analyzer(nlp: Any, language: str, entities: Sequence[str]) -> Any:
    presidio: Any = importlib.import_module("presidio_analyzer")
    engines: Any = importlib.import_module("presidio_analyzer.nlp_engine")
    asked = {label: name for label, name in LABELS.items() if name in entities}
    labels = {label for of_one in nlp.pipe_labels.values() for label in of_one}
    settings = engines.NerModelConfiguration(
        model_to_presidio_entity_mapping=asked, labels_to_ignore=sorted(labels.difference(asked))
    )
    engine = engines.SpacyNlpEngine([{"lang_code": language, "model_name": "loaded already"}], settings)
    engine.nlp = {language: nlp}
    recognizers = _recognizers(language, entities)
    registry = presidio.RecognizerRegistry(recognizers=recognizers, supported_languages=[language])
    return presidio.AnalyzerEngine(registry=registry, nlp_engine=engine, supported_languages=[language])


def _recognizers(language: str, entities: Sequence[str]) -> list[Any]:
    predefined: Any = importlib.import_module("presidio_analyzer.predefined_recognizers")
    made = [
        getattr(predefined, RECOGNIZERS[name])(supported_language=language) for name in entities if name in RECOGNIZERS
    ]
    for one in made:
        if isinstance(one, predefined.EmailRecognizer):
            one.validate_result = _has_known_domain()
    if of_pipeline := [name for name in entities if name in OF_PIPELINE]:
        made.append(predefined.SpacyRecognizer(supported_language=language, supported_entities=of_pipeline))
    return made


def _has_known_domain() -> Any:
    """Return the check of presidio's recognizer of e-mail addresses with the installed list, because its own downloads one."""
    extract: Any = importlib.import_module("tldextract").TLDExtract(suffix_list_urls=(), cache_dir=None)
    return lambda address: extract(address).fqdn != ""
