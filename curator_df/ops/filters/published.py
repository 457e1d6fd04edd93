# SPDX-License-Identifier: Apache-2.0
"""Look up published profiles and MinHash schemes by their names, for operators that take either the value or its name."""

from __future__ import annotations

import functools
import operator
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

from curator_df.arguments import choose
from curator_df.core.columns import require_columns
from curator_df.core.receipts.recipe_text import recipe_value
from curator_df.errors import ParameterError
from curator_df.kernels.metrics.catalog import Words
from curator_df.kernels.minhash.scheme import Scheme
from curator_df.ops.filters.profile_keys import keys_of_column
from curator_df.ops.filters.rules import Profile, ProfileName, ProfilesByValue
from curator_df.suggestions import did_you_mean

Published = TypeVar("Published", Profile, Scheme)


def profile_of(
    operator: str, profile: Profile | ProfileName, words: Words | None = None, *, from_metrics: bool = False
) -> Profile:
    """Return a profile, or the published one of this name, with other words if asked.

    Raises
    ------
    ParameterError
        If there is none of this name, its metrics are not defined for these words, or ``words`` is given for metrics that
        were counted before.
    """
    if not isinstance(profile, Profile):
        profile = _named(operator, "profile", profile, published_profiles(), "a Profile")
    if words is None:
        return profile
    choose(operator, "words", words, Words)
    if from_metrics:
        raise ParameterError(
            f"{operator}: words={words!r} changes nothing with from_metrics=True, which reads metrics that were counted before. "
            "Pass words= to add_metrics"
        )
    return profile.replace(words=words)


def published_profiles() -> dict[str, Profile]:
    """Return the published profiles by name."""
    from curator_df import profiles  # they are made of classes of this layer

    return {each.name: each for each in map(vars(profiles).get, profiles.__all__) if isinstance(each, Profile)}


@recipe_value.register(Profile)
def recipe_of_profile(profile: Profile) -> Any:
    """Return a profile as a recipe names it: a name, a list of names that are joined, or what makes it; None if nothing does.

    Examples
    --------
    >>> from curator_df.profiles import DCLM_QUALITY, fineweb_2
    >>> recipe_of_profile(DCLM_QUALITY), recipe_of_profile(DCLM_QUALITY.replace(stop_word=None))
    ('dclm_quality', {'replace': {'of': 'dclm_quality', 'stop_word': None}})
    >>> recipe_of_profile(fineweb_2("de", words="whitespace"))
    {'fineweb_2': {'language': 'deu_Latn', 'words': 'whitespace'}}
    """
    from curator_df import profiles

    listed, names = published_profiles(), profile.name.split(" + ")
    if names[0].startswith("fineweb_2 "):
        made: dict[str, Any] = {"language": names[0].partition(" ")[2], "words": profile.words}
        try:
            return {"fineweb_2": made} if profiles.fineweb_2(**made) == profile else None
        except ParameterError:  # of a configuration that is not included
            return None
    if not all(name in listed for name in names):
        return None
    of = names[0] if len(names) == 1 else names
    try:
        base = functools.reduce(operator.add, (listed[name] for name in names))
    except ParameterError:  # they were joined after their words were replaced
        return None
    if base == profile:
        return of
    kept = {rule.reason: rule.threshold for rule in profile.rules}
    changes: dict[str, Any] = {
        rule.reason: kept.get(rule.reason) for rule in base.rules if kept.get(rule.reason) != rule.threshold
    }
    changes |= {"words": profile.words} if profile.words != base.words else {}
    changes |= {"stop_words": list(profile.stop_words)} if profile.stop_words != base.stop_words else {}
    return {"replace": {"of": of, **changes}} if base.replace(**changes) == profile else None


def profiles_of(
    df: Any,
    operator: str,
    profile: Profile | ProfileName | Mapping[Any, Profile | ProfileName],
    by: str | None,
    words: Words | None,
    *,
    from_metrics: bool,
) -> Profile | ProfilesByValue:
    """Return a profile, or the profiles for the values of a column.

    Raises
    ------
    ParameterError
        If only one of a mapping and a column is given, a key cannot be a value of the column, two profiles have different
        user-defined metrics of one name, or as `profile_of`.
    """
    if by is None and not isinstance(profile, Mapping):
        return profile_of(operator, profile, words, from_metrics=from_metrics)
    if by is None:
        raise ParameterError(
            f"{operator}: profile= is a dict of profiles, and by= does not name the column that chooses one for each row. "
            "Use by='language', for example"
        )
    if not isinstance(profile, Mapping):
        raise ParameterError(
            f"{operator}: by={by!r} needs a dict of a profile for each value of the column, such as "
            "profile={'de': fineweb_2('de'), 'fr': fineweb_2('fr')}, or leave out by= to use one profile for all rows"
        )
    require_columns(df, operator, by)
    if not profile:
        raise ParameterError(f"{operator}: the dict of profiles is empty")
    keys = keys_of_column(operator, profile, by, df.dtypes[by])
    found = {
        key: profile_of(operator, one, words, from_metrics=from_metrics)
        for key, one in zip(keys, profile.values(), strict=True)
    }
    # The fingerprint of the step does not depend on the order of the dict.
    values = sorted((key for key in found if key is not None), key=repr)
    different = list(dict.fromkeys(found[key] for key in [*values, *([None] if None in found else [])]))
    _refuse_two_metrics_of_a_name(operator, different)
    chosen = tuple((key, different.index(found[key])) for key in values)
    return ProfilesByValue(by, tuple(different), chosen, different.index(found[None]) if None in found else -1)


def _refuse_two_metrics_of_a_name(operator: str, profiles: Iterable[Profile]) -> None:
    metrics = {metric for profile in profiles for metric in profile.user_metrics}
    own = [metric.name for metric in metrics]
    if twice := sorted({name for name in own if own.count(name) > 1}):
        raise ParameterError(
            f"{operator}: the profiles have two metrics of yours named {', '.join(map(repr, twice))}. Give each another name"
        )


def scheme_of(operator: str, scheme: Scheme | str) -> Scheme:
    """Return a scheme, or the published one of this name; raise `ParameterError` if there is none."""
    return scheme if isinstance(scheme, Scheme) else _named(operator, "scheme", scheme, schemes(), "a Scheme")


def schemes() -> dict[str, Scheme]:
    """Return the published schemes by name."""
    from curator_df.profiles import minhash

    return {found.name.lower(): found for found in vars(minhash).values() if isinstance(found, Scheme)}


def _named(operator: str, parameter: str, value: Any, listed: Mapping[str, Published], kind: str) -> Published:
    if isinstance(value, str) and value in listed:
        return listed[value]
    names = ", ".join(map(repr, listed))
    hint = did_you_mean(value, listed) if isinstance(value, str) else ""
    raise ParameterError(
        f"{operator}: {parameter}={value!r} is neither {kind} nor the name of a published one.{hint} The names are: {names}"
    )
