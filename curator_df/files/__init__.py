# SPDX-License-Identifier: Apache-2.0
"""Folders that show only complete files, ownership of folders, and files of sorted rows."""
