# SPDX-License-Identifier: Apache-2.0
"""Number of examples that hypothesis tries: ``pytest --hypothesis-profile=thorough`` has four times as many."""

from hypothesis import settings

THOROUGH_EXAMPLES = 100
"""Default number of examples of the thorough profile, and that of hypothesis itself."""


def examples(thorough: int) -> int:
    """Return the number of examples of a test that has so many in the thorough profile; a quarter, but 10, in any other."""
    return thorough if settings().max_examples >= THOROUGH_EXAMPLES else max(thorough // 4, min(thorough, 10))
