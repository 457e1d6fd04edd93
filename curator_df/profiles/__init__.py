# SPDX-License-Identifier: Apache-2.0
"""Published rules of datatrove 0.10.0, FineWeb, FineWeb-2 for each language, NeMo Curator 0.9.0, dolma and DCLM, as data.

Each set of filter rules and thresholds names its source. Two are functions: `fineweb_2` returns the profile of a
language, and `nemo_per_extension` reads one from a user's table. See ``docs/profiles.md``.
"""

from typing import TYPE_CHECKING

from curator_df.profiles.c4 import DATATROVE_C4, FINEWEB_C4
from curator_df.profiles.dclm import DCLM_QUALITY, DCLM_REPETITION
from curator_df.profiles.dolma import DOLMA_C4, DOLMA_GOPHER_V1, DOLMA_GOPHER_V2
from curator_df.profiles.fineweb import DATATROVE_FINEWEB, FINEWEB_PAPER
from curator_df.profiles.fineweb_2 import fineweb_2
from curator_df.profiles.gopher import DATATROVE_GOPHER_QUALITY, DATATROVE_GOPHER_REPETITION
from curator_df.profiles.nemo import (
    NEMO_CODE,
    NEMO_CODE_COMMENTS,
    NEMO_CODE_HTML,
    NEMO_CODE_TOKENS,
    NEMO_ENGLISH,
    nemo_per_extension,
)
from curator_df.suggestions import no_such_name

__all__ = [
    "DATATROVE_C4",
    "DATATROVE_FINEWEB",
    "DATATROVE_GOPHER_QUALITY",
    "DATATROVE_GOPHER_REPETITION",
    "DCLM_QUALITY",
    "DCLM_REPETITION",
    "DOLMA_C4",
    "DOLMA_GOPHER_V1",
    "DOLMA_GOPHER_V2",
    "FINEWEB_C4",
    "FINEWEB_PAPER",
    "NEMO_CODE",
    "NEMO_CODE_COMMENTS",
    "NEMO_CODE_HTML",
    "NEMO_CODE_TOKENS",
    "NEMO_ENGLISH",
    "fineweb_2",
    "nemo_per_extension",
]

if not TYPE_CHECKING:  # with it, a type checker would take any name for a public one
    __getattr__ = no_such_name("curator_df.profiles", __all__)
