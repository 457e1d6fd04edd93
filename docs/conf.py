# SPDX-License-Identifier: Apache-2.0
"""Settings of Sphinx for the site: ``sphinx-build -W docs docs/_build``."""

import json
import sys
from pathlib import Path
from typing import Any

import curator_df

sys.path.insert(0, str(Path(__file__).parent))

import llms
import notebook_pages

SEARCH_TERMS = json.loads(Path(__file__).with_name("search_terms.json").read_text())
"""Words by which people look for a page, and which its text does not have, or has as often as other pages."""

project = "curator_df"
author = "the curator_df developers"
copyright = author  # noqa: A001 - what Sphinx calls it
version = release = curator_df.__version__
extensions = [
    "myst_parser",
    "numpydoc",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.viewcode",
]
root_doc = "index"
source_suffix = {".rst": "restructuredtext", ".md": "markdown", ".myst": "markdown"}
notebook_pages.write_pages()
exclude_patterns = ["_build"]
templates_path = ["_templates"]
html_theme = "pydata_sphinx_theme"
html_title = "curator_df"
html_theme_options = {"navigation_with_keys": False, "show_toc_level": 2, "secondary_sidebar_items": ["page-toc"]}
html_sidebars: dict[str, list[str]] = {"*": [], "notebooks/*": [], "api": ["sidebar-nav-bs"]}
"""Pages with none below them have no list of pages at their side, and more room for code and tables."""
html_copy_source = False
html_static_path = ["_static"]
html_css_files = ["outputs.css"]
myst_heading_anchors = 3
autosummary_generate = True
autodoc_typehints = "none"  # numpydoc's parameters say it in words
numpydoc_show_class_members = False
numpydoc_xref_param_type = False
default_role = "autolink"  # a link where the name is public, otherwise the name
html_search_scorer = str(Path(__file__).with_name("search_scorer.js"))


def add_search_terms(_app: Any, page: str, source: list[str]) -> None:
    """Put the words of a page into its index, below its title."""
    if terms := SEARCH_TERMS.get(page):
        title, _, text = source[0].partition("\n")
        entries = ", ".join(f"! {term}" for term in terms)
        source[0] = f"{title}\n\n```{{index}} {entries}\n```\n{text}"


def write_llms(app: Any, error: Exception | None) -> None:
    """Write ``llms.txt`` into the finished site."""
    if error is None:
        Path(app.outdir, "llms.txt").write_text(llms.page())


def setup(app: Any) -> None:
    """Connect what Sphinx calls while it reads pages, and when it has written them."""
    app.connect("source-read", add_search_terms)
    app.connect("build-finished", write_llms)
