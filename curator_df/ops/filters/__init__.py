# SPDX-License-Identifier: Apache-2.0
"""Operators that measure texts and keep rows by what was measured."""
