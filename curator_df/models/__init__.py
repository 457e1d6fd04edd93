# SPDX-License-Identifier: Apache-2.0
"""Models over texts: embeddings, classes, and duplicates by meaning. torch is imported in workers, when a model is loaded."""
