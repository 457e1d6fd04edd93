# SPDX-License-Identifier: Apache-2.0
"""Read input splits and blocks from files, and write blocks to files."""
