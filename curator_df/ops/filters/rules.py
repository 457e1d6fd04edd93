# SPDX-License-Identifier: Apache-2.0
"""Rules over text metrics, and profiles: published sets of rules, as data.

A profile is a value: `Profile.replace` and ``+`` make new ones. What applies them to a table is `ops.filters.profile`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from curator_df.arguments import choose
from curator_df.errors import ParameterError
from curator_df.kernels.metrics.catalog import (
    CATALOGUE,
    METRICS,
    Words,
    counts_words,
    require_rule_metrics,
    require_words,
)
from curator_df.kernels.metrics.counts import STOP_WORDS
from curator_df.ops.filters.user_metrics import UserMetric
from curator_df.suggestions import did_you_mean, suggests_names

Comparison = Literal[">=", "<=", ">", "<"]
"""Comparisons of a metric with a threshold."""
ProfileName = Literal[
    "datatrove_c4",
    "datatrove_fineweb",
    "datatrove_gopher_quality",
    "datatrove_gopher_repetition",
    "dclm_quality",
    "dclm_repetition",
    "dolma_c4",
    "dolma_gopher_v1",
    "dolma_gopher_v2",
    "fineweb_c4",
    "fineweb_paper",
    "nemo_code",
    "nemo_code_comments",
    "nemo_code_html",
    "nemo_code_tokens",
    "nemo_english",
]
"""Names of the profiles of `curator_df.profiles`."""

NO_PROFILE = "no_profile"
"""Reason for a row whose value has no profile, where profiles are chosen by a column."""
MISSING_TEXT = "missing_text"
"""Reason of the rows whose text is null."""
MISSING_METRIC = "missing_metric"
"""Reason of the rows that have a text, but no value of a metric that a rule uses."""


@suggests_names
@dataclass(frozen=True)
class Rule:
    """Keep a text if ``metric comparison threshold`` is true; otherwise drop it for ``reason``.

    See Also
    --------
    Profile, keep_profile

    Examples
    --------
    >>> str(Rule("word_count", ">=", 50, "too_short"))
    'word_count >= 50'
    """

    metric: str | UserMetric
    """Name of a metric of the catalog, or a user-defined metric."""
    comparison: Comparison
    """Comparison that is true for a kept text."""
    threshold: float
    """In the metric's unit."""
    reason: str
    """Name under which dropped rows are counted."""
    source: str = ""
    """Where the threshold comes from."""

    def __post_init__(self) -> None:
        if not isinstance(self.metric, UserMetric):
            require_rule_metrics([self.metric])
        choose("Rule", "comparison", self.comparison, Comparison)
        if not np.isfinite(self.threshold):
            raise ParameterError(f"Rule {self.reason!r}: threshold={self.threshold} must be a finite number")
        if not self.reason or self.reason == MISSING_TEXT:
            raise ParameterError(
                f"Rule on {self.column}: reason={self.reason!r} is empty or a name that curator_df itself uses. Give "
                "another reason"
            )

    def __str__(self) -> str:
        return f"{self.column} {self.comparison} {self.threshold:g}"

    @property
    def column(self) -> str:
        """Name of the metric, and of its column."""
        return self.metric.name if isinstance(self.metric, UserMetric) else self.metric

    def breaks(self, values: npt.NDArray[np.generic]) -> npt.NDArray[np.bool_]:
        """Return where values, shape (rows,), break the rule."""
        compare = {">=": np.greater_equal, "<=": np.less_equal, ">": np.greater, "<": np.less}[self.comparison]
        kept: npt.NDArray[np.bool_] = compare(values, self.threshold)
        return ~kept


@suggests_names
@dataclass(frozen=True)
class Profile:
    """Rules in the order in which they are applied; a text is dropped by the first rule that it breaks.

    See Also
    --------
    keep_profile, Rule

    Examples
    --------
    >>> short = Profile("short", "1", "ours", (Rule("word_count", ">=", 3, "too_short"),))
    >>> short.replace(too_short=5).rules[0].threshold
    5
    """

    name: str
    """Name, including the system it comes from."""
    version: str
    """Version of that system; ``+modified`` is added by `replace`."""
    source: str
    """Paper or code."""
    rules: tuple[Rule, ...]
    """In the order in which they are applied."""
    words: Words = "whitespace"
    """Way in which a text is split into words."""
    stop_words: tuple[str, ...] = STOP_WORDS
    """Words that ``stop_word_count`` counts."""

    def __post_init__(self) -> None:
        choose(f"Profile {self.name!r}", "words", self.words, Words)
        object.__setattr__(self, "rules", tuple(self.rules))
        object.__setattr__(self, "stop_words", tuple(self.stop_words))
        odd = [word for word in self.stop_words if word.split() != [word]]
        if odd or len(set(self.stop_words)) < len(self.stop_words) or not self.stop_words:
            raise ParameterError(
                f"Profile {self.name!r}: stop_words={self.stop_words!r} must be distinct words without white space, at least one"
            )
        require_words(f"Profile {self.name!r}", self.text_metrics, self.words)
        twice = sorted({reason for reason in self.reasons if self.reasons.count(reason) > 1})
        if twice:
            raise ParameterError(
                f"Profile {self.name!r} has more than one rule for {', '.join(map(repr, twice))}. Give each another reason="
            )
        own = [metric.name for metric in self.user_metrics]
        if twice := sorted({name for name in own if own.count(name) > 1}):
            raise ParameterError(
                f"Profile {self.name!r} has two different metrics of your own (UserMetric) with the name "
                f"{', '.join(map(repr, twice))}. Give each another name"
            )

    @property
    def reasons(self) -> tuple[str, ...]:
        """Reason of each rule, in order."""
        return tuple(rule.reason for rule in self.rules)

    @property
    def metrics(self) -> tuple[str, ...]:
        """Metrics that the rules use, each once, in order of first use."""
        return tuple(dict.fromkeys(rule.column for rule in self.rules))

    @property
    def text_metrics(self) -> tuple[str, ...]:
        """Metrics of the catalog among these, which are computed from the text."""
        return tuple(name for name in self.metrics if name in METRICS)

    @property
    def user_metrics(self) -> tuple[UserMetric, ...]:
        """User-defined metrics that the rules use, each once."""
        return tuple(dict.fromkeys(rule.metric for rule in self.rules if isinstance(rule.metric, UserMetric)))

    @property
    def column_metrics(self) -> tuple[str, ...]:
        """Metrics among these that another operator adds as columns (`add_token_count`)."""
        return tuple(name for name in self.metrics if name in CATALOGUE and name not in METRICS)

    @property
    def made_metrics(self) -> tuple[str, ...]:
        """Metrics among these that are computed when the profile is applied: all others."""
        return tuple(name for name in self.metrics if name not in self.column_metrics)

    def replace(
        self, *, words: Words | None = None, stop_words: Sequence[str] | None = None, **thresholds: float | None
    ) -> Profile:
        """Return the profile with other thresholds, or with texts split into words in another way.

        Parameters
        ----------
        words : {"whitespace", "datatrove", "icu"}, optional
            How to split texts into words; unchanged by default.
        stop_words : sequence of str, optional
            Words that ``stop_word_count`` counts, in this case; unchanged by default.
        **thresholds : float or None
            New threshold, named by the reason of a rule, or by its metric if only one rule uses that metric. None
            removes the rule.

        Returns
        -------
        Profile
            The version ends in ``+modified`` if thresholds or stop words are given.

        Raises
        ------
        ParameterError
            If a name is neither a reason nor a metric, or is the metric of several rules (the message lists the valid
            names); if a metric is not defined for these words; if a stop word occurs twice, is empty or contains white
            space.

        Examples
        --------
        >>> from curator_df.profiles import DATATROVE_GOPHER_QUALITY
        >>> DATATROVE_GOPHER_QUALITY.replace(gopher_short_doc=20, hash_ratio=None).version
        '0.10.0+modified'
        >>> DATATROVE_GOPHER_QUALITY.replace(words="whitespace").version
        '0.10.0'
        """
        by_reason = {self._reason_of(name): threshold for name, threshold in thresholds.items()}
        rules = []
        for rule in self.rules:
            threshold = by_reason.get(rule.reason, rule.threshold)
            if threshold is not None:
                rules.append(rule if rule.reason not in by_reason else replace(rule, threshold=threshold, source=""))
        is_as_it_was = not (thresholds or stop_words) or self.version.endswith("+modified")
        version = self.version if is_as_it_was else self.version + "+modified"
        words = self.words if words is None else words
        listed = self.stop_words if stop_words is None else tuple(stop_words)
        return replace(self, rules=tuple(rules), version=version, words=words, stop_words=listed)

    def __add__(self, other: Profile | Rule) -> Profile:
        """Return a profile that tries these rules and then those of ``other``."""
        if isinstance(other, Rule):
            return replace(self, rules=(*self.rules, other), version=self.version + "+modified")
        if not isinstance(other, Profile):
            return NotImplemented
        splitting = [profile.words for profile in (self, other) if counts_words(profile.text_metrics)]
        if len(set(splitting)) > 1:
            raise ParameterError(
                f"Profile {self.name!r} has words={self.words!r}, and {other.name!r} has words={other.words!r}, but one pass "
                "can split a text into words in only one way. Give both the same words, as with "
                f"{other.name}.replace(words={self.words!r}), or apply the profiles one after the other"
            )
        counting = [profile for profile in (self, other) if "stop_word_count" in profile.metrics]
        if len({profile.stop_words for profile in counting}) > 1:
            raise ParameterError(
                f"profiles {self.name!r} and {other.name!r} have different stop words, but one pass over the text counts "
                "one list. Apply them in two steps, each a keep_profile"
            )
        return Profile(
            name=f"{self.name} + {other.name}",
            version=f"{self.version} + {other.version}",
            source=f"{self.source}; {other.source}",
            rules=self.rules + other.rules,
            words=splitting[0] if splitting else self.words,
            stop_words=(counting or [self])[0].stop_words,
        )

    def _reason_of(self, name: str) -> str:
        reasons = [rule.reason for rule in self.rules if name in (rule.reason, rule.column)]
        if name in self.reasons:
            return name
        if len(reasons) == 1:
            return reasons[0]
        if reasons:
            raise ParameterError(
                f"profile {self.name!r} has several rules on {name!r}, so this name does not say which one is meant. Name "
                f"the rule by its reason instead, one of: {', '.join(reasons)}"
            )
        hint = did_you_mean(name, [rule.reason for rule in self.rules])
        raise ParameterError(
            f"profile {self.name!r} has no rule {name!r}.{hint} Its rules are: "
            + ", ".join(f"{rule.reason} ({rule})" for rule in self.rules)
        )


@dataclass(frozen=True)
class ProfilesByValue:
    """Profiles for the values of a column; its rules are those of all profiles, one profile after the other."""

    column: str
    """Column that chooses the profile of a row."""
    profiles: tuple[Profile, ...]
    """Different profiles."""
    chosen: tuple[tuple[Any, int], ...]
    """Values of the column, each with the position of its profile."""
    other: int
    """Position of the profile for all other values and null; -1 if rows with these are dropped."""

    @property
    def rules(self) -> tuple[Rule, ...]:
        """Rules of all profiles."""
        return tuple(rule for profile in self.profiles for rule in profile.rules)

    @property
    def reasons(self) -> tuple[str, ...]:
        """Reason of each rule; profiles may share reasons."""
        return tuple(rule.reason for rule in self.rules)

    @property
    def made_metrics(self) -> tuple[str, ...]:
        """Metrics of all profiles that are counted, each once."""
        return tuple(dict.fromkeys(name for profile in self.profiles for name in profile.made_metrics))
