# SPDX-License-Identifier: Apache-2.0
"""CSV and other delimited text as a lazy table."""
