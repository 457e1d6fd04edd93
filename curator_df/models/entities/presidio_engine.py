# SPDX-License-Identifier: Apache-2.0
"""Presidio's analyzer in a worker: a spaCy pipeline that is loaded once for a run, and the recognizers of the given entities.

Nothing is downloaded: presidio's engine gets an already loaded pipeline, and its recognizer of e-mail addresses the
list of top-level domains that comes with tldextract.
"""

from __future__ import annotations

import importlib
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from curator_df.errors import CorruptFileError, InputError
from curator_df.memory.process_cache import held

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
            raise CorruptFileError(f"{folder} cannot be loaded by this release of spaCy: {exc}") from exc
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
        pipeline = held(("spaCy", digest), lambda: LoadedPipeline(folder))
        return LoadedAnalyzer(pipeline, language, entities, min_score)

    return held(("presidio", digest, language, entities, min_score), make)


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
