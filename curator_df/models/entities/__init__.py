# SPDX-License-Identifier: Apache-2.0
"""Entities that a spaCy pipeline finds."""
