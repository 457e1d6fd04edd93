# SPDX-License-Identifier: Apache-2.0
"""Answers of a completion server."""
