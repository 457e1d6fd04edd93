# SPDX-License-Identifier: Apache-2.0
"""Sizes as users write them, and what is not one."""

import pytest

from curator_df.core.sizes import read_size
from curator_df.errors import ParameterError


@pytest.mark.parametrize(
    ("written", "size_bytes"),
    [("256 MB", 256_000_000), ("1.5kB", 1_500), ("1GiB", 1 << 30), ("7", 7), (7, 7), (2.0, 2)],
)
def test_a_size_is_read(written, size_bytes):
    assert read_size("memory", written) == size_bytes


@pytest.mark.parametrize(
    "written",
    ["", " ", "MB", "B", "lots", "1e400", "inf", "nan", float("inf"), float("nan"), "1,000MB", True, None, [], b"3MB"],
)
def test_what_is_no_size_is_refused(written):
    with pytest.raises(ParameterError, match="is not a number of bytes; write it like '256MB'"):
        read_size("memory", written)


@pytest.mark.parametrize("written", ["-5GB", "0", 0, "0.1", -1])
def test_less_than_one_byte_is_refused(written):
    with pytest.raises(ParameterError, match="must be more than zero bytes"):
        read_size("memory", written)
