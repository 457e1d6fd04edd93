# SPDX-License-Identifier: Apache-2.0
"""Published sets of filter rules and thresholds, as data, each with its source beside it."""

from curator_df.profiles.gopher import DATATROVE_GOPHER_QUALITY

__all__ = ["DATATROVE_GOPHER_QUALITY"]
