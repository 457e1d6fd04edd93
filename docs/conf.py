# SPDX-License-Identifier: Apache-2.0
"""Settings of Sphinx for the site: ``sphinx-build -W docs docs/_build``."""

import curator_df

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
exclude_patterns = ["_build"]
templates_path = ["_templates"]
html_theme = "pydata_sphinx_theme"
html_title = "curator_df"
html_theme_options = {"navigation_with_keys": False, "show_toc_level": 2, "secondary_sidebar_items": ["page-toc"]}
html_sidebars = {"operators": []}  # it has no pages below it, and its tables are wide
html_copy_source = False
myst_heading_anchors = 3
autosummary_generate = True
autodoc_typehints = "none"  # numpydoc's parameters say it in words
numpydoc_show_class_members = False
numpydoc_xref_param_type = False
default_role = "autolink"  # a link where the name is public, otherwise the name
