# SPDX-License-Identifier: Apache-2.0
"""Folders that show whole files only, who writes to them, and files of sorted rows."""
