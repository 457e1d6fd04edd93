# SPDX-License-Identifier: Apache-2.0
"""Counts of lines, paragraphs and sentences."""
