# SPDX-License-Identifier: Apache-2.0
"""Recipes: a run as a YAML file, which names reader, steps, writer and budget; and the published pipelines as such files.

See ``docs/recipes.md``.
"""
