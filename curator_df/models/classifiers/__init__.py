# SPDX-License-Identifier: Apache-2.0
"""Classifiers of texts."""
