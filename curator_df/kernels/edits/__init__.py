# SPDX-License-Identifier: Apache-2.0
"""Texts with something removed, repaired or replaced."""
