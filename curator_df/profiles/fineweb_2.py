# SPDX-License-Identifier: Apache-2.0
"""FineWeb-2's filters: rules of Gopher and FineWeb, with thresholds and stop words for each language.

The values of some languages are in ``fineweb_2.json``, each read from FineWeb-2's ``configs``; the configuration of any other
language can be given as a file. The rules and their order are those of ``fineweb-2-pipeline.py``.
"""

from __future__ import annotations

import json
import os
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

from curator_df.arguments import choose
from curator_df.core.calls import show_choices
from curator_df.errors import InputError, ParameterError
from curator_df.ops.filters.rules import Profile, Rule
from curator_df.ops.language.language_labels import label_for
from curator_df.profiles.fineweb import DATATROVE_FINEWEB
from curator_df.profiles.gopher import DATATROVE_GOPHER_QUALITY, DATATROVE_GOPHER_REPETITION
from curator_df.suggestions import did_you_mean

_PIPELINE = "huggingface/fineweb-2, fineweb-2-pipeline.py"
_PLAIN = {
    "dup_line_frac": "dup_line_frac",
    "line_punct_thr": "line_punct_ratio",
    "new_line_ratio": "list_ratio",
    "min_avg_word_length": "gopher_below_avg_threshold",
    "max_avg_word_length": "gopher_above_avg_threshold",
    "max_non_alpha_words_ratio": "gopher_below_alpha_threshold",
}
"""Keys of a configuration, with the reason of the rule whose threshold it sets."""
_GRAMS = {"top_n_grams": "top_{}_gram", "dup_n_grams": "duplicated_{}_n_grams"}
"""Keys with pairs of an n-gram length in words and a threshold."""
_OFF = ("dup_para_frac", "dup_para_char_frac", "dup_line_char_frac", "short_line_ratio")
"""Rules that FineWeb-2's pipeline switches off."""
_CHAR_DUP_RATIO = 0.1
"""Threshold of FineWeb-2's pipeline: char_duplicates_ratio=0.1, "changed from 0.01 in fineweb english"."""
AnyLanguage = Literal["icu", "whitespace"]
"""Ways in which texts of any language are split into words; datatrove's tokens are for English."""


@show_choices
def fineweb_2(language: str, *, config: str | os.PathLike[str] | None = None, words: AnyLanguage = "icu") -> Profile:
    """Return FineWeb-2's filters for a language.

    Parameters
    ----------
    language : str
        Language and script as named by FineWeb-2, such as ``"fra_Latn"``, or a code of an included language: ``"fr"``.
    config : path, optional
        A FineWeb-2 configuration, such as ``configs/swh_Latn.yml``, for a language that is not included here.
    words : {"icu", "whitespace"}, default "icu"
        How to split texts into words: by ICU (the icu extra), which is closest to FineWeb-2's own
        tokenizers, or at white space, for languages that write it between words.

    Returns
    -------
    Profile
        Gopher's repetition rules, FineWeb's and Gopher's quality rules in FineWeb-2's order, under the reasons of
        datatrove. A threshold of 0 disables its rule, as there, except for the one on line feeds. The limit of the
        language score is not included; use `keep_language` for it.

    Raises
    ------
    InputError
        If ``config`` cannot be read, or lacks a value.
    ParameterError
        If the language is not a str, or is not included and no ``config`` is given; the message lists those included.

    Notes
    -----
    FineWeb-2 derived its thresholds with the tokenizer that datatrove assigns to each language. Words by ICU are not
    the same: for example, an elided article (``l'homme``) is not a word by itself. Verdicts therefore differ.

    References
    ----------
    .. [1] G. Penedo et al. 2025, FineWeb2: one pipeline to scale them all, arXiv 2506.20920
    .. [2] https://github.com/huggingface/fineweb-2, configs

    Examples
    --------
    >>> profile = fineweb_2("fra_Latn")
    >>> str(profile.rules[0]), profile.stop_words[:3]
    ('duplicate_line_ratio <= 0.264', ('de', 'la', 'le'))
    """
    if not isinstance(language, str):
        raise ParameterError(
            f"fineweb_2: language={language!r} must be a str, such as 'fra_Latn' or 'fr', not {type(language).__name__}"
        )
    if str(words) == "datatrove":  # a value of `add_metrics` and of Profile
        raise ParameterError(
            "fineweb_2: words='datatrove' splits English only. Use words='icu', which is closest to the tokenizers that "
            "datatrove has for other languages, or words='whitespace'"
        )
    choose("fineweb_2", "words", words, AnyLanguage)
    if config is None:
        language = label_for(language, _held()) or language
    values, source = _values(language, config)
    try:
        thresholds = {reason: float(values[key]) for key, reason in _PLAIN.items()}
        thresholds.update((name.format(n), float(value)) for key, name in _GRAMS.items() for n, value in values[key])
        stop_words = tuple(dict.fromkeys(map(str, values["stopwords"])))
    except (KeyError, TypeError, ValueError) as exc:
        raise InputError(
            f"fineweb_2: {source} is not a configuration of FineWeb-2: {exc!r}. For config=, pass a file from "
            "the folder configs/ of https://github.com/huggingface/fineweb-2"
        ) from exc
    thresholds["char_dup_ratio"] = _CHAR_DUP_RATIO
    chain = DATATROVE_GOPHER_REPETITION.rules + DATATROVE_FINEWEB.rules + DATATROVE_GOPHER_QUALITY.rules
    rules = [_with_threshold(rule, thresholds.get(rule.reason, rule.threshold), source) for rule in chain]
    return Profile(
        name=f"fineweb_2 {language}",
        version="2",
        source=f"{source}; {_PIPELINE}",
        rules=tuple(
            rule for rule in rules if rule.reason not in _OFF and (rule.threshold or rule.reason == "list_ratio")
        ),
        words=words,
        stop_words=stop_words,
    )


def _with_threshold(rule: Rule, threshold: float, source: str) -> Rule:
    if threshold == rule.threshold:
        return rule
    return Rule(rule.metric, rule.comparison, threshold, rule.reason, source)


def _values(language: str, config: str | os.PathLike[str] | None) -> tuple[dict[str, Any], str]:
    """Return a configuration, and its source."""
    if config is None:
        held = _held()
        if language not in held:
            if label_for(language, ("eng_Latn",)):
                raise ParameterError(
                    "fineweb_2: FineWeb-2 has no English. FineWeb's rules for it are curator_df.profiles.DATATROVE_FINEWEB"
                )
            raise ParameterError(
                f"fineweb_2: no thresholds of {language!r} are included.{did_you_mean(str(language), held)} Use one of: "
                f"{', '.join(held)}; or pass the file of another language with config="
            )
        return held[language], f"huggingface/fineweb-2, configs/{language}.yml, commit {held[language]['commit']}"
    import yaml

    try:
        values = yaml.safe_load(Path(config).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as exc:
        raise InputError(
            f"fineweb_2: config={os.fspath(config)!r} cannot be read: {exc}. Correct the path or the file"
        ) from exc
    return values, os.fspath(config)


@lru_cache(maxsize=1)
def _held() -> dict[str, dict[str, Any]]:
    held: dict[str, dict[str, Any]] = json.loads(Path(__file__).with_name("fineweb_2.json").read_text(encoding="utf-8"))
    return held
