# SPDX-License-Identifier: Apache-2.0
"""Resolve the classifier of `add_class` and `keep_class` to a model that runs, and to the meaning of its numbers."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn

from curator_df.core.arguments import path_of, require_mapping, strings_of
from curator_df.core.columns import require_text
from curator_df.errors import ParameterError
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
from curator_df.models.text_model import TextModel, refuse_settings, text_model, user_model
from curator_df.ops.host_only import require_host

Model = Classifier | str | os.PathLike[str] | Callable[[Sequence[str]], Any]
Found = TextModel | UserModel | FastTextClassifier | Pipeline


def chosen_model(
    df: Any,
    operator: str,
    classifier: Model,
    text: str,
    revision: str | None,
    given: Mapping[str, Any],
    batches: Mapping[str, Any],
) -> tuple[Found, ClassScores]:
    """Check all parameters; return the model, and the meaning of its numbers."""
    require_text(df, operator, text)
    require_host(df._meta, operator)
    chosen = _checked(operator, given)
    of_entry: dict[str, Any] = {"revision": revision}
    if not isinstance(classifier, Classifier):
        settings = {
            "max_tokens": chosen["max_tokens"],
            "max_batch_tokens": batches["batch_tokens"],
            "revision": revision,
        }
        settings |= {name: batches[name] for name in ("compute_dtype", "trust_remote_code")}
        found = _of_another_kind(operator, classifier, chosen, settings, batches["batch_rows"])
        if found is not None:
            return found
        name = path_of(operator, "classifier", classifier)
    else:
        name, of_entry = classifier.model, _where(operator, classifier, revision)
        of_catalogue = {
            "thresholds": classifier.thresholds,
            "max_tokens": classifier.max_tokens,
            "max_chars": classifier.max_chars,
        }
        chosen |= {key: value for key, value in of_catalogue.items() if chosen[key] is None}
    lengths = {key: chosen[key] for key in ("max_tokens", "max_chars")}
    model = text_model(operator, name, head="classes", **of_entry, **lengths, **batches)
    if model.answers is not None:
        own = model.answers.labels
        return model, ClassScores.of(operator, chosen["labels"], own, len(own), chosen["thresholds"], None, "answers")
    if model.files.several_classes:
        raise ParameterError(
            f"{operator}: {name!r} assigns several classes to a text. Pass a function that returns one number for each class"
        )
    widths = (len(model.files.classes),) if model.files.layers is None else model.files.layers.widths
    if len(widths) > 1:
        raise ParameterError(
            f"{operator}: {name!r} answers {len(widths)} questions at once. Use it with add_prompt_scores"
        )
    _compare(operator, classifier, model.files.classes)
    labels, own, thresholds = chosen["labels"], model.files.classes, chosen["thresholds"]
    clip = classifier.clip if isinstance(classifier, Classifier) else None
    return model, ClassScores.of(operator, labels, own, widths[0], thresholds, clip, "probabilities")


def _of_another_kind(
    operator: str, classifier: Any, chosen: Mapping[str, Any], settings: Mapping[str, Any], rows: Any
) -> tuple[Found, ClassScores] | None:
    """Return a pipeline, fastText file or function, and the meaning of its numbers; None for any other classifier."""
    labels, thresholds = chosen["labels"], chosen["thresholds"]
    if is_pipeline(classifier):
        refuse_settings(operator, settings)
        made = pipeline(operator, classifier, chosen["max_chars"])
        kind: Meaning = "largest" if made.labels else "probabilities"
        return made, ClassScores.of(operator, labels, made.labels, max(len(made.labels), 1), thresholds, None, kind)
    if is_fasttext(classifier):
        refuse_settings(operator, settings)
        file = fasttext_classifier(operator, os.fspath(classifier), chosen["max_chars"])
        return file, ClassScores.of(operator, labels, file.labels, len(file.labels), thresholds, None, "largest")
    if not callable(classifier):
        return None
    if not labels:
        raise ParameterError(f"{operator}: a function needs labels=, the names of its classes in order")
    if thresholds is not None:
        raise ParameterError(
            f"{operator}: thresholds= is for models that make one number; a function returns one for each class"
        )
    refuse_settings(operator, settings)
    scores = ClassScores.of(operator, labels, (), len(labels), None, None, "largest")
    return user_model(operator, classifier, len(scores.labels), chosen["max_chars"], rows), scores


def _where(operator: str, classifier: Classifier, revision: str | None) -> dict[str, Any]:
    """Return the location and the settings of an entry, as arguments of `text_model`."""
    is_pinned = revision in (None, classifier.revision)
    if not os.path.isdir(classifier.model):
        revision = revision or classifier.revision or _no_revision(operator, classifier)
    return {
        "revision": revision,
        "base_revision": classifier.base_revision if is_pinned else None,
        "center_chars": classifier.center_chars,
        "adapter": classifier.adapter and (classifier.adapter, classifier.adapter_revision),
        "answers": None if classifier.answers is None else classifier.answers(),
    }


def _checked(operator: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return what was given, with labels and thresholds of the right type."""
    labels, thresholds = given["labels"], given["thresholds"]
    if thresholds is not None:
        require_mapping(operator, "thresholds", thresholds)
    return {**given, "labels": None if labels is None else strings_of(operator, "labels", labels)}


def _compare(operator: str, classifier: Model, classes: Sequence[str]) -> None:
    """Warn if a model of the catalog has other classes than were published when the entry was written."""
    if not isinstance(classifier, Classifier) or not classifier.labels:
        return
    published, found = set(classifier.labels), set(classes)
    if published != found:
        other = ", ".join(map(repr, sorted(published ^ found)))
        warnings.warn(
            f"{operator}: {classifier.model!r} has other classes than those published for {classifier.name}; they differ in "
            f"{other}. The classes of the model are used",
            UserWarning,
            stacklevel=4,
        )


def _no_revision(operator: str, classifier: Classifier) -> NoReturn:
    raise ParameterError(
        f"{operator}: no commit is pinned for {classifier.name}, {classifier.model!r} on the hub. Pass revision=, a commit that "
        "you have checked, or revision='main' for the latest one"
    )


def answer_tokens(operator: str, model: Found) -> int:
    """Return the maximum number of tokens of an answer; raise `ParameterError` if the model gives no answers."""
    if isinstance(model, TextModel) and model.answers is not None:
        return model.answers.new_tokens
    raise ParameterError(
        f"{operator}: answer_into= is only for a generative classifier, such as classifiers.AEGIS_DEFENSIVE"
    )
