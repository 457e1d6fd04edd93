# SPDX-License-Identifier: Apache-2.0
"""Pictures of the README and the site: ``python -m docs.take_pictures`` takes them of pages that a real run makes.

The run curates text of the installed packages, as ``curator-df demo`` does. Chromium must be installed.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import curator_df as cdf
from curator_df.demo_corpus import write_demo_corpus

HERE = Path(__file__).parent / "pictures"
FOLDER = Path(tempfile.gettempdir()) / "demo"
"""Folder of the run, which the pages show."""
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
DARK, LIGHT = 0, 1
"""Numbers of Blink for the color scheme that a user prefers."""


def main() -> None:
    """Make the pages and take their pictures."""
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    if browser is None:
        sys.exit(f"Install one of {', '.join(BROWSERS)}: it takes the pictures.")
    shutil.rmtree(FOLDER, ignore_errors=True)
    write_demo_corpus(FOLDER / "documents")
    with cdf.start_cluster(memory="1GB"):
        docs = cdf.read_jsonl(FOLDER / "documents")
        clean = docs.pipe(cdf.normalize_unicode).pipe(cdf.keep_profile, cdf.profiles.DATATROVE_GOPHER_QUALITY)
        near = clean.pipe(cdf.drop_exact_duplicates).pipe(cdf.drop_near_duplicates, jaccard_threshold=0.8)
        receipt = cdf.write_parquet(near, FOLDER / "clean", rejects=FOLDER / "rejects")
        kept = cdf.checkpoint(clean.pipe(cdf.drop_exact_duplicates), FOLDER / "exact")
        groups = cdf.find_near_duplicates(kept, jaccard_threshold=0.8, workdir=FOLDER / "near")
        audit = cdf.audit_duplicates(groups, kept, pairs=50)
        profile = cdf.profiles.DATATROVE_GOPHER_QUALITY.replace(words="whitespace")
        names = ["non_symbol_word_count", "alpha_word_ratio"]
        explorer = cdf.explore_thresholds(docs.pipe(cdf.add_metrics, profile), profile, metrics=names)
    receipt.save(FOLDER / "receipt.html")
    audit.save(FOLDER / "audit.html")
    HERE.mkdir(exist_ok=True)
    explorer.plot().savefig(HERE / "thresholds.png", dpi=80)
    take(browser, FOLDER / "receipt.html", HERE / "receipt.png", (1200, 1150))
    take(browser, FOLDER / "receipt.html", HERE / "receipt_dark.png", (1200, 1150), DARK)
    take(browser, FOLDER / "audit.html", HERE / "audit.png", (1200, 800))


def take(browser: str, page: Path, picture: Path, size: tuple[int, int], scheme: int = LIGHT) -> None:
    """Take a picture of the upper part of a page, in pixels."""
    with tempfile.TemporaryDirectory() as profile:
        subprocess.run(
            [
                *(browser, "--headless", "--no-sandbox", "--hide-scrollbars", f"--user-data-dir={profile}"),
                *(f"--window-size={size[0]},{size[1]}", f"--blink-settings=preferredColorScheme={scheme}"),
                *(f"--screenshot={picture}", page.as_uri()),
            ],
            check=True,
            capture_output=True,
            timeout=120,
        )
    if not picture.is_file():
        sys.exit(f"{browser} took no picture of {page}.")


if __name__ == "__main__":
    main()
