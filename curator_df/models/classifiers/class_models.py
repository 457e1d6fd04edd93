# SPDX-License-Identifier: Apache-2.0
"""Resolve the classifier of `add_class` and `keep_class` to a model that runs, and to the meaning of its numbers."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn

from curator_df.core.arguments import path_of, require_mapping, strings_of
from curator_df.core.columns import require_text
from curator_df.core.memory.resources import NO_LIMITS, Resources
from curator_df.errors import ParameterError, outside_level
from curator_df.models.callables import UserModel
from curator_df.models.classifiers.catalogue import Classifier
from curator_df.models.classifiers.class_scores import ClassScores, Meaning
from curator_df.models.classifiers.local_models import (
    FastTextClassifier,
    Pipeline,
    fasttext_classifier,
    is_fasttext,
    is_pipeline,
    pipeline,
)
from curator_df.models.model import Model
from curator_df.models.text_model import TextModel, refuse_settings, text_model, user_model
from curator_df.ops.host_only import require_host

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
    model = model.replace(
        model=entry.model,
        revision=revision,
        max_tokens=entry.max_tokens if model.max_tokens is None else model.max_tokens,
        max_chars=entry.max_chars if model.max_chars is None else model.max_chars,
    )
    thresholds = entry.thresholds if thresholds is None else thresholds
    return _of_files(operator, model, labels, thresholds, entry, **of_entry)


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
            f"{operator}: {name!r} answers {len(widths)} questions at once. Use it with add_prompt_scores"
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
        raise ParameterError(f"{operator}: a function needs labels=, the names of its classes in order")
    if thresholds is not None:
        raise ParameterError(
            f"{operator}: thresholds= is for models that make one number; a function returns one for each class"
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
        f"{operator}: answer_into= is only for a generative classifier, such as classifiers.AEGIS_DEFENSIVE"
    )
