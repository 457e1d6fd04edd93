# SPDX-License-Identifier: Apache-2.0
"""Scheme of MinHash signatures, as a value: shingles, permutations and bands, and their expected recall.

Published schemes are in `curator_df.profiles.minhash`; `minhash` computes signatures and band hashes from one.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from numbers import Integral
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt

from curator_df.arguments import choose
from curator_df.errors import ParameterError
from curator_df.kernels.minhash.shingle_hashes import CHARACTERS, NORMALIZED_CHARACTERS, NORMALIZED_WORDS, WORDS
from curator_df.kernels.rows.content_hash import Normalize
from curator_df.kernels.text.lower_case import SPACE_BYTE, lower_bytes, lower_steps
from curator_df.suggestions import did_you_mean, suggests_names

Ngrams = Literal["characters", "words"]
"""Units of shingles: Unicode code points, or words between white space."""

SchemeName = Literal["default", "nemo", "fineweb", "data_juicer", "redpajama_v2"]
"""Names of the schemes of `curator_df.profiles.minhash`."""

MOST_CODE_POINTS = 192
"""Maximum number of code points of a character n-gram."""
MOST_WORDS = 256
"""Maximum number of words of a word n-gram."""
BITS_VERSION = 1
"""Version of the hashes; signatures and band hashes of different versions cannot be compared."""


@suggests_names
@dataclass(frozen=True)
class Scheme:
    """A scheme for signatures. Two signatures are comparable if their schemes are equal in all but name and source.

    See Also
    --------
    drop_near_duplicates, add_minhash
    """

    ngrams: Ngrams
    """The unit of a shingle."""
    ngram_size: int
    """Code points or words per shingle. A shorter text is a single shingle."""
    num_bands: int
    """Number of bands; two documents are candidates if they agree in at least one."""
    minhashes_per_band: int
    """Hashes per band, all of which must agree."""
    use_64_bit_hash: bool = False
    """64-bit shingle hashes and signatures, which take up to ten times as long. 32 bits are enough for documents with fewer
    than a few million distinct shingles."""
    seed: int = 42
    """Seed of the permutations."""
    normalize: Normalize | None = None
    """Compare texts unchanged, or in lower case with each run of white space as one space."""
    name: str = "custom"
    """Name in reports."""
    source: str = ""
    """Source of the numbers."""

    def __post_init__(self) -> None:
        """Raise for values that cannot be computed."""
        choose("Scheme", "ngrams", self.ngrams, Ngrams)
        choose("Scheme", "normalize", self.normalize, (None, *get_args(Normalize)))
        for name in ("ngram_size", "num_bands", "minhashes_per_band", "seed"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, Integral):
                raise ParameterError(f"{name}={value!r} must be a whole number, not {type(value).__name__}")
        most = MOST_CODE_POINTS if self.ngrams == "characters" else MOST_WORDS
        least = 2 if self.ngrams == "characters" else 1
        if not least <= self.ngram_size <= most:
            raise ParameterError(
                f"ngram_size={self.ngram_size} is not from {least} to {most}, the possible sizes of ngrams={self.ngrams!r}. "
                "Use a size in this range"
            )
        if self.num_bands < 1 or self.minhashes_per_band < 1:
            raise ParameterError(
                f"num_bands={self.num_bands} and minhashes_per_band={self.minhashes_per_band}: both must be at least 1"
            )
        if not 0 <= self.seed < 1 << 32:
            raise ParameterError(f"seed={self.seed} must be from 0 to 4294967295 (2**32 - 1)")

    def replace(self, **changes: Any) -> Scheme:
        """Return the scheme with other values, under the name "custom" unless another is given.

        Examples
        --------
        >>> Scheme("words", 5, num_bands=14, minhashes_per_band=8).replace(num_bands=20).num_hashes
        160
        """
        unknown = [name for name in changes if name not in self.__dataclass_fields__]
        if unknown:
            names = self.__dataclass_fields__
            hint = did_you_mean(unknown[0], names)
            raise ParameterError(
                f"Scheme.replace: a scheme has no parameter {unknown[0]!r}.{hint} The parameters are: {', '.join(names)}"
            )
        return replace(self, **{"name": "custom", "source": "", **changes})

    @property
    def num_hashes(self) -> int:
        """Number of permutations."""
        return self.num_bands * self.minhashes_per_band

    @property
    def bits(self) -> int:
        """Bits per hash."""
        return 64 if self.use_64_bit_hash else 32

    @property
    def signature_bytes(self) -> int:
        """Size of a document's signature in bytes."""
        return self.num_hashes * self.bits // 8

    def permutations(self) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
        """Return the multipliers and increments (see `permutations`)."""
        return permutations(self.num_hashes, self.seed, use_64_bit_hash=self.use_64_bit_hash)

    def candidate_probability(self, jaccard: Any) -> Any:
        """Return the probability that two documents are candidates (see `candidate_probability`)."""
        return candidate_probability(jaccard, self.num_bands, self.minhashes_per_band)

    def header(self) -> dict[str, Any]:
        """Return the header stored with signatures, which is checked before they are reused: all fields but name and source."""
        fields = asdict(self)
        return {name: fields[name] for name in fields if name not in ("name", "source")} | {
            "bits_version": BITS_VERSION
        }


@lru_cache(maxsize=8)
def permutations(count: int, seed: int, *, use_64_bit_hash: bool) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """Draw the parameters of permutations as NeMo Curator does.

    Parameters
    ----------
    count : int
        Number of permutations.
    seed : int
        Seed of NumPy's legacy generator, whose stream is frozen.
    use_64_bit_hash : bool
        Whether they permute 64-bit hashes.

    Returns
    -------
    multipliers, increments : ndarray of uint32 or uint64, shape (count,), read-only
        Drawn alternately, multipliers from 1 and increments from 0 to below 2^31 - 1, or 2^61 - 1. The first multiplier is
        also the seed of the shingle hash.

    Examples
    --------
    >>> [numbers[:2].tolist() for numbers in permutations(260, 42, use_64_bit_hash=False)]
    [[1608637543, 1935803229], [1273642419, 787846414]]
    """
    generator = np.random.RandomState(seed)
    word: Any = np.uint64 if use_64_bit_hash else np.uint32
    stop = (1 << (61 if use_64_bit_hash else 31)) - 1
    pairs = [(generator.randint(1, stop, dtype=word), generator.randint(0, stop, dtype=word)) for _ in range(count)]
    table = np.array(pairs, dtype=word).reshape(count, 2)
    multipliers, increments = (np.ascontiguousarray(table[:, column]) for column in (0, 1))
    multipliers.flags.writeable = increments.flags.writeable = False
    return multipliers, increments


def candidate_probability(jaccard: Any, num_bands: int, minhashes_per_band: int) -> Any:
    """Return the probability that two documents agree in at least one band: the S-curve of locality-sensitive hashing.

    Parameters
    ----------
    jaccard : float or ndarray of float
        Jaccard similarity of the documents' sets of shingles, 0 to 1.
    num_bands : int
        Number of bands.
    minhashes_per_band : int
        Hashes per band.

    Returns
    -------
    float or ndarray of float
        Probability from 0 to 1.

    References
    ----------
    Leskovec, Rajaraman, Ullman, Mining of Massive Datasets, 3rd ed., section 3.4.2.

    Examples
    --------
    >>> [round(float(candidate_probability(jaccard, 20, 13)), 3) for jaccard in (0.7, 0.8, 0.9)]
    [0.177, 0.677, 0.997]
    """
    return 1.0 - (1.0 - np.asarray(jaccard, dtype=np.float64) ** minhashes_per_band) ** num_bands


def steepest_jaccard(num_bands: int, minhashes_per_band: int) -> float:
    """Return approximately where the S-curve is steepest: most pairs above are found, most below are not.

    Examples
    --------
    >>> round(steepest_jaccard(20, 13), 3)
    0.794
    """
    return float((1 / num_bands) ** (1 / minhashes_per_band))


def shingle_unit(scheme: Scheme) -> Literal["characters", "normalized", "words"]:
    """Return what the shingles of a scheme are made of: there is a compiled kernel for each of the three.

    Examples
    --------
    >>> shingle_unit(Scheme("characters", 5, 1, 1)), shingle_unit(Scheme("words", 5, 1, 1, normalize="case_and_spaces"))
    ('characters', 'words')
    """
    if scheme.ngrams == "words":
        return "words"
    return "normalized" if scheme.normalize else "characters"


def shingle_settings(scheme: Scheme) -> tuple[int, int, Any, Any, Any]:
    """Return what kernels take of a scheme's shingles: kind, size and the tables of bytes and code points."""
    if scheme.ngrams == "characters":
        kind = NORMALIZED_CHARACTERS if scheme.normalize else CHARACTERS
    else:
        kind = NORMALIZED_WORDS if scheme.normalize else WORDS
    table = lower_steps()
    return kind, scheme.ngram_size, lower_bytes() if scheme.normalize else plain_bytes(), table.page_of, table.pages


@lru_cache(maxsize=1)
def plain_bytes() -> npt.NDArray[np.uint8]:
    """Return each ASCII character unchanged, and `SPACE_BYTE` for white space and all other bytes."""
    lowered = lower_bytes()
    return np.where(lowered == SPACE_BYTE, lowered, np.arange(256, dtype=np.uint8))
