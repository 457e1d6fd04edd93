# SPDX-License-Identifier: Apache-2.0
"""Keys of whole rows: hashes of the contents of their columns, and the values by which the kept row of a group is chosen."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from curator_df.exchange.keys import Keys
from curator_df.kernels.rows.content_hash import Normalize
from curator_df.kernels.rows.either_backend import block_hashes, lengths_on_host, ranks_on_host


def content_keys(block: Any, *, columns: tuple[str, ...], normalize: Normalize | None, ranked_by: str | None) -> Keys:
    """Hash the rows of a block, and take values to choose the kept rows by (``"#length"``: characters of the text)."""
    return ranked_keys(block_hashes(block, columns, normalize=normalize), block, columns, ranked_by)


def ranked_keys(hashes: npt.NDArray[np.uint64], block: Any, columns: tuple[str, ...], ranked_by: str | None) -> Keys:
    """Return hashes of the rows of a block, with the values by which the kept row of a group is chosen."""
    if ranked_by is None:
        return Keys(hashes)
    if ranked_by == "#length":
        lengths: Any = sum(lengths_on_host(block[name]) for name in columns)
        return Keys(hashes, lengths)
    return Keys(hashes, *ranks_on_host(block[ranked_by]))
