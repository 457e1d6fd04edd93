# SPDX-License-Identifier: Apache-2.0
"""Resolve the classifier of `add_class` and `keep_class` to a model that runs, and to the meaning of its numbers."""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import os
import warnings
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

import cloudpickle
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from curator_df.arguments import absolute, path_of, require_mapping, strings_of
from curator_df.core.columns import require_text
from curator_df.core.ranges.out_of_memory import is_out_of_memory
from curator_df.errors import CorruptFileError, InputError, OperatorError, ParameterError, outside_level, type_and_text
from curator_df.extras import require_package
from curator_df.files.hub import PROTOCOL
from curator_df.kernels.compiling.kernel_sets import FASTTEXT
from curator_df.kernels.fasttext.rank_labels import call_bytes, rank_labels
from curator_df.memory.process_cache import cached
from curator_df.memory.resources import NO_LIMITS, Resources
from curator_df.models.batches import BatchCounts, row_batches, run_batches
from curator_df.models.callables import UserModel
from curator_df.models.classifiers.catalogue import Classifier
from curator_df.models.classifiers.class_scores import ClassScores, Meaning
from curator_df.models.embeddings.k_means import LIBRARY_BYTES, require_sklearn
from curator_df.models.model import Model
from curator_df.models.text_model import TextModel, refuse_settings, text_model, user_model
from curator_df.ops.host_only import require_host
from curator_df.ops.language.language_blocks import LanguageModel, find_model, loaded

MAX_CHARS = 10_000
"""Default number of characters of a text that are read."""
ROWS = 64
"""Number of texts passed to a pipeline in each call."""
PIPELINE_CALL_BYTES = 64_000_000
"""Bytes of a call of a pipeline: texts, their tokens, and a row of features for each; assumed."""
PICKLES = (".pkl", ".pickle", ".joblib")


@dataclass(frozen=True)
class FastTextClassifier:
    """FastText model that assigns labels to texts."""

    file: LanguageModel
    """File of the model."""
    labels: tuple[str, ...]
    """Labels as in the file, without their prefix."""
    max_chars: int
    """Maximum number of characters of a text passed to the model."""

    @property
    def held_bytes(self) -> int:
        """Bytes that a process holds once."""
        return self.file.held_bytes

    @property
    def call_bytes(self) -> int:
        """Bytes that a call holds."""
        return call_bytes(len(self.labels))

    @property
    def compiled(self) -> tuple[str, ...]:
        """Names of the kernels that a call uses."""
        return FASTTEXT

    def run(self, texts: pa.ChunkedArray, keep: Callable[[npt.NDArray[np.int64], Any], None]) -> BatchCounts:
        """Pass all non-null texts to the model, and a score for each label to ``keep``."""
        model, counts = loaded(self.file), BatchCounts()
        for ranked in rank_labels(model, texts, max_chars=self.max_chars, top=None, needs_letter=False):
            window = texts.slice(ranked.first_row, len(ranked.found))
            rows = np.flatnonzero(window.is_valid().to_numpy())
            scores = np.fmin(ranked.scores[rows], 1.0).astype(np.float32)
            scores[ranked.found[rows] < 0] = 0
            if len(rows):
                keep(rows + ranked.first_row, scores)
                counts.documents += len(rows)
                counts.batches += 1
        return counts


@dataclass(frozen=True)
class Pipeline:
    """Fitted scikit-learn pipeline that takes texts."""

    operator: str
    """Name of the operator, for errors."""
    content: bytes = field(repr=False, metadata={"identity": False})
    """Pickled object; empty for a pipeline in a file."""
    path: str = field(metadata={"identity": False})
    """Path of a skops file; empty for an object."""
    digest: str
    """Digest (BLAKE2b) of the object, or of the file."""
    method: str
    """Method that is called."""
    labels: tuple[str, ...]
    """Names of its classes; empty for a pipeline that returns a single score."""
    max_chars: int
    """Maximum number of characters of a text passed to the pipeline."""
    size_bytes: int
    """Size of the object or file."""

    @property
    def held_bytes(self) -> int:
        """Bytes that a process holds once: scikit-learn, and the object twice while it is loaded."""
        return LIBRARY_BYTES + 4 * self.size_bytes

    @property
    def libraries(self) -> dict[str, int]:
        """Part of these bytes that stays after the run, by library."""
        return {"scikit-learn": LIBRARY_BYTES}

    @property
    def call_bytes(self) -> int:
        """Bytes that a call holds."""
        return PIPELINE_CALL_BYTES

    def run(self, texts: pa.ChunkedArray, keep: Callable[[npt.NDArray[np.int64], Any], None]) -> BatchCounts:
        """Pass all non-null texts to the pipeline, and its numbers to ``keep``."""
        made: Any = cached(self.digest, lambda: cloudpickle.loads(self.content) if self.content else _load(self.path))
        counts, places = BatchCounts(), np.flatnonzero(texts.is_valid().to_numpy())

        def call(chosen: npt.NDArray[np.int64]) -> None:
            these = places[chosen]
            window = pc.utf8_slice_codeunits(texts.slice(these[0], these[-1] - these[0] + 1), 0, self.max_chars)
            keep(these, self._numbers(made, window.drop_null().to_pylist()))

        run_batches(
            np.zeros(len(places), np.int64), cached(("rows", self.digest), lambda: row_batches(ROWS)), call, counts
        )
        return counts

    def _numbers(self, made: Any, texts: Sequence[str]) -> npt.NDArray[np.float32]:
        width = max(len(self.labels), 1)
        numbers = np.asarray(getattr(made, self.method)(texts), dtype=np.float32)
        if numbers.ndim == 1:  # a decision between two classes, or a single score
            numbers = np.stack([-numbers, numbers], axis=1) if width == 2 else numbers[:, None]
        if numbers.shape != (len(texts), width):
            raise OperatorError(
                f"{self.operator}: {self.method} must return numbers of shape ({len(texts)}, {width}) for "
                f"{len(texts)} texts; it returned the shape {numbers.shape}"
            )
        return numbers


def is_pipeline(classifier: Any) -> bool:
    """Return whether a classifier is a scikit-learn object, or a file of one."""
    if isinstance(classifier, str | os.PathLike):
        return os.fspath(classifier).endswith((".skops", *PICKLES))
    return hasattr(classifier, "predict") and hasattr(classifier, "get_params")


def is_fasttext(classifier: Any) -> bool:
    """Return whether a classifier names a fastText file."""
    return isinstance(classifier, str | os.PathLike) and os.fspath(classifier).endswith((".bin", ".ftz"))


def fasttext_classifier(operator: str, path: str | os.PathLike[str], max_chars: int | None) -> FastTextClassifier:
    """Find a model in a file and read its labels; it is not loaded.

    Raises
    ------
    InputError
        If the file does not exist, or is not a model with labels.
    CorruptFileError
        If the file is truncated or damaged.
    """
    file = find_model(operator, path)
    return FastTextClassifier(file, file.labels, max_chars or MAX_CHARS)


def pipeline(operator: str, classifier: Any, max_chars: int | None) -> Pipeline:
    """Check a fitted pipeline, and pack it for workers.

    Raises
    ------
    InputError
        If the file does not exist, or skops does not trust its contents.
    ParameterError
        If it is a pickled file, is not fitted, or a library is missing.
    """
    require_sklearn(operator)
    if isinstance(classifier, str | os.PathLike):
        path = absolute(classifier)
        if path.endswith(PICKLES):
            raise ParameterError(
                f"{operator}: {path!r} is a pickled file, and loading it would execute code in it. Load it yourself if you "
                "trust it and pass the object, or save it with skops.io.dump as a file ending in .skops"
            )
        if not os.path.isfile(path):
            raise InputError(f"{operator}: there is no file {path!r}. Correct the path")
        made, content = _load(path), b""
        packed = Path(path).read_bytes()
    else:
        made, path = classifier, ""
        packed = content = cloudpickle.dumps(classifier)
    if hasattr(made, "classes_") and not any(hasattr(made, name) for name in ("predict_proba", "decision_function")):
        raise ParameterError(
            f"{operator}: {type(made).__name__} returns a class without scores. Use a pipeline with predict_proba or "
            "decision_function (VotingClassifier(voting='soft'), or CalibratedClassifierCV around it), or a function "
            "that returns 1 for the class and 0 for the others, with labels="
        )
    method = next((name for name in ("predict_proba", "decision_function", "predict") if hasattr(made, name)), "")
    labels = tuple(map(str, getattr(made, "classes_", ()))) if method != "predict" else ()
    if not method or (method != "predict" and not labels):
        raise ParameterError(f"{operator}: {type(made).__name__} has no classes. Fit it first")
    digest = hashlib.blake2b(packed, digest_size=16).hexdigest()
    return Pipeline(operator, content, path, digest, method, labels, max_chars or MAX_CHARS, len(packed))


def _load(path: str) -> Any:
    require_package(f"the pipeline {path!r}", "skops", "models")
    skops: Any = importlib.import_module("skops.io")
    if not zipfile.is_zipfile(path):
        raise CorruptFileError(
            f"the pipeline {path!r} is not a skops file, or is truncated. Copy the file again, or save the pipeline again with "
            "skops.io.dump"
        )
    try:
        return skops.load(path)
    except TypeError as exc:  # skops raises it for unknown types
        raise InputError(
            f"{path!r} was not loaded, because it has types that skops does not trust: {exc}. If you trust the file, load "
            "it yourself and pass the object"
        ) from exc
    except Exception as exc:  # of a damaged file, skops raises errors of many types
        if is_out_of_memory(exc):
            raise
        raise CorruptFileError(
            f"the pipeline {path!r} cannot be loaded by this release of skops and scikit-learn: {type_and_text(exc)}. "
            "Copy the file again, or save the pipeline again with skops.io.dump"
        ) from exc


Classifies = str | os.PathLike[str] | Callable[[Sequence[str]], Any] | Classifier | Model
"""Values that the parameter ``classifier`` takes."""
Found = TextModel | UserModel | FastTextClassifier | Pipeline


def chosen_model(
    df: Any,
    operator: str,
    classifier: Classifies,
    text: str,
    labels: Sequence[str] | None,
    thresholds: Mapping[str, float] | None,
) -> tuple[Found, Resources, ClassScores]:
    """Check all parameters; return the model, the resources of a call, and the meaning of the model's numbers."""
    require_text(df, operator, text)
    require_host(df._meta, operator)
    if thresholds is not None:
        require_mapping(operator, "thresholds", thresholds)
    chosen = None if labels is None else strings_of(operator, "labels", labels)
    model = Model.of(classifier)
    if isinstance(model.model, Classifier):
        found, scores = _of_catalog(operator, model, chosen, thresholds)
    else:
        found, scores = _of_another_kind(operator, model, chosen, thresholds) or _of_files(
            operator, model, chosen, thresholds
        )
    return found, model.resources or NO_LIMITS, scores


def _of_catalog(
    operator: str, model: Model, labels: tuple[str, ...] | None, thresholds: Mapping[str, float] | None
) -> tuple[Found, ClassScores]:
    """Return a model of the catalog, with the published settings where none are given."""
    entry: Classifier = model.model
    revision, of_entry = _where(operator, entry, model.revision)
    if entry.file is not None:
        return _of_file(operator, model, entry, entry.file, revision, labels, thresholds)
    model = model.replace(
        model=entry.model,
        revision=revision,
        max_tokens=entry.max_tokens if model.max_tokens is None else model.max_tokens,
        max_chars=entry.max_chars if model.max_chars is None else model.max_chars,
    )
    thresholds = entry.thresholds if thresholds is None else thresholds
    return _of_files(operator, model, labels, thresholds, entry, **of_entry)


def _of_file(
    operator: str,
    model: Model,
    entry: Classifier,
    file: str,
    revision: str | None,
    labels: tuple[str, ...] | None,
    thresholds: Mapping[str, float] | None,
) -> tuple[Found, ClassScores]:
    """Return a fastText model of the catalog, from a folder or the hub."""
    refuse_settings(operator, model.replace(revision=None))
    is_local = os.path.isdir(entry.model)
    path = os.path.join(entry.model, file) if is_local else f"{PROTOCOL}{entry.model}@{revision}/{file}"
    found = fasttext_classifier(operator, path, entry.max_chars if model.max_chars is None else model.max_chars)
    _compare(operator, entry, found.labels)
    return found, ClassScores.of(operator, labels, found.labels, len(found.labels), thresholds, None, "largest")


def _of_files(
    operator: str,
    chosen: Model,
    labels: tuple[str, ...] | None,
    thresholds: Mapping[str, float] | None,
    entry: Classifier | None = None,
    **of_entry: Any,
) -> tuple[Found, ClassScores]:
    """Return a model of transformers, and the meaning of its numbers."""
    name = path_of(operator, "classifier", chosen.model)
    model = text_model(operator, chosen, head="classes", **of_entry)
    if model.answers is not None:
        own = model.answers.labels
        return model, ClassScores.of(operator, labels, own, len(own), thresholds, None, "answers")
    if model.files.several_classes:
        raise ParameterError(
            f"{operator}: {name!r} assigns several classes to a text. Pass a function that returns one number for each class"
        )
    widths = (len(model.files.classes),) if model.files.layers is None else model.files.layers.widths
    if len(widths) > 1:
        raise ParameterError(
            f"{operator}: {name!r} has {len(widths)} separate outputs, each with its own classes, but this operator reads "
            "only one. Use the model with add_prompt_scores"
        )
    clip = None
    if entry is not None:
        _compare(operator, entry, model.files.classes)
        clip = entry.clip
    return model, ClassScores.of(operator, labels, model.files.classes, widths[0], thresholds, clip, "probabilities")


def _of_another_kind(
    operator: str, model: Model, labels: tuple[str, ...] | None, thresholds: Mapping[str, float] | None
) -> tuple[Found, ClassScores] | None:
    """Return a pipeline, fastText file or function, and the meaning of its numbers; None for any other classifier."""
    classifier = model.model
    if is_pipeline(classifier):
        refuse_settings(operator, model)
        made = pipeline(operator, classifier, model.max_chars)
        kind: Meaning = "largest" if made.labels else "probabilities"
        return made, ClassScores.of(operator, labels, made.labels, max(len(made.labels), 1), thresholds, None, kind)
    if is_fasttext(classifier):
        refuse_settings(operator, model)
        file = fasttext_classifier(operator, os.fspath(classifier), model.max_chars)
        return file, ClassScores.of(operator, labels, file.labels, len(file.labels), thresholds, None, "largest")
    if not callable(classifier):
        return None
    if not labels:
        raise ParameterError(
            f"{operator}: a function as classifier needs labels=, the names of its classes in the order of the "
            "scores that it returns"
        )
    if thresholds is not None:
        raise ParameterError(
            f"{operator}: thresholds= is for models that return a single score, but a function returns one number for each "
            "class. Leave thresholds= out"
        )
    scores = ClassScores.of(operator, labels, (), len(labels), None, None, "largest")
    return user_model(operator, model, len(scores.labels)), scores


def _where(operator: str, classifier: Classifier, revision: str | None) -> tuple[str | None, dict[str, Any]]:
    """Return the revision of an entry, and its own settings, as arguments of `text_model`."""
    is_pinned = revision in (None, classifier.revision)
    if not os.path.isdir(classifier.model):
        revision = revision or classifier.revision or _no_revision(operator, classifier)
    return revision, {
        "base_revision": classifier.base_revision if is_pinned else None,
        "center_chars": classifier.center_chars,
        "adapter": classifier.adapter and (classifier.adapter, classifier.adapter_revision),
        "answers": None if classifier.answers is None else classifier.answers(),
    }


def _compare(operator: str, classifier: Classifier, classes: Sequence[str]) -> None:
    """Warn if a model of the catalog has other classes than were published when the entry was written."""
    if not classifier.labels:
        return
    published, found = set(classifier.labels), set(classes)
    if published != found:
        other = ", ".join(map(repr, sorted(published ^ found)))
        warnings.warn(
            f"{operator}: {classifier.model!r} has other classes than those published for {classifier.name}; they differ in "
            f"{other}. The classes of the model are used",
            UserWarning,
            stacklevel=outside_level(),
        )


def _no_revision(operator: str, classifier: Classifier) -> NoReturn:
    raise ParameterError(
        f"{operator}: no commit is pinned for {classifier.name}, {classifier.model!r} on the hub. Pass "
        f"cdf.model(cdf.classifiers.{classifier.name}, revision=...) with a commit that you have checked, or with 'main' for the "
        "latest one"
    )


def answer_tokens(operator: str, model: Found) -> int:
    """Return the maximum number of tokens of an answer; raise `ParameterError` if the model gives no answers."""
    if isinstance(model, TextModel) and model.answers is not None:
        return model.answers.new_tokens
    raise ParameterError(
        f"{operator}: answer_into= is only for a classifier that generates text, such as classifiers.AEGIS_DEFENSIVE. Leave "
        "it out, or use such a classifier"
    )
