# SPDX-License-Identifier: Apache-2.0
"""Bad rows of a table that quarantines, when it is computed without the runner: they are counted in a warning."""

from __future__ import annotations

import warnings

from curator_df.core.ranges.source import BadRow


class WarnOfBadRows:
    """Counts bad rows; `warn` tells of them once."""

    def __init__(self) -> None:
        self._count = 0
        self._first: BadRow | None = None

    def __call__(self, row: BadRow) -> None:
        """Count a row."""
        self._count += 1
        self._first = self._first or row

    def warn(self) -> None:
        """Warn if there was any."""
        if self._first is not None:
            row = self._first
            where = f"line {row.line:,} (byte {row.offset:,})" if row.line else f"byte {row.offset:,}"
            warnings.warn(
                f"{self._count:,} bad rows were left out, the first in {row.path!r}, {where}: {row.reason}. A run with write_* "
                "or checkpoint keeps them in its quarantine folder",
                UserWarning,
                stacklevel=2,
            )
