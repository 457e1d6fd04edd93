# SPDX-License-Identifier: Apache-2.0
"""Texts as tokens: tokenizers, and the files that training frameworks read."""
