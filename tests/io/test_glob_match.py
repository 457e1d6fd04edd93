# SPDX-License-Identifier: Apache-2.0
"""What an input's listing says of a file that is not there yet is what the next listing finds."""

import os

import pytest

from curator_df.io.listing import list_files

PATTERNS = (
    ".",
    "a",
    "*",
    "a/*",
    "*.jsonl",
    "*/*.jsonl",
    "**",
    "**/*.jsonl",
    "a/**",
    "_*",
    "[ab]",
    "a/part.jsonl",
    "*/b/",
)
PLACES = (
    "new.jsonl",
    "new.txt",
    "a/new.jsonl",
    "a/b/new.jsonl",
    "a/_b/new.jsonl",
    "_c/new.jsonl",
    "c/new.jsonl",
    "c/b/.x/n.jsonl",
)


@pytest.mark.parametrize("pattern", PATTERNS)
def test_it_is_what_the_next_listing_finds(tmp_path, pattern):
    for name in ("a/part.jsonl", "a/b/part.jsonl", "b/b/part.jsonl", "part.jsonl", "_c/part.jsonl"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("{}\n")
    before = list_files(f"{tmp_path}/{pattern}", suffixes=(".jsonl",))
    for place in PLACES:
        path = tmp_path / place
        predicted = before.would_find(os.path.realpath(path)) is not None
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("{}\n")
        assert predicted == (str(path) in list_files(f"{tmp_path}/{pattern}", suffixes=(".jsonl",)).paths), place


def test_the_same_of_urls(tmp_path):
    import fsspec

    root = f"memory://{tmp_path.name}"
    for name in ("a/part.jsonl", "part.jsonl"):
        with fsspec.open(f"{root}/{name}", "wb") as file:
            file.write(b"{}\n")
    for pattern in ("", "/a", "/*.jsonl", "/**/*.jsonl", "/*/*.jsonl"):
        listing = list_files(root + pattern, suffixes=(".jsonl",))
        for place in ("new.jsonl", "a/new.jsonl", "a/_b/new.jsonl", "c/new.txt", "a/b/c/new.jsonl"):
            predicted = listing.would_find(f"memory:///{tmp_path.name}/{place}") is not None
            with fsspec.open(f"{root}/{place}", "wb") as file:
                file.write(b"{}\n")
            found = list_files(root + pattern, suffixes=(".jsonl",)).paths
            assert predicted == any(path.endswith(f"{tmp_path.name}/{place}") for path in found), (pattern, place)
            fsspec.filesystem("memory").rm(f"/{tmp_path.name}/{place}")
