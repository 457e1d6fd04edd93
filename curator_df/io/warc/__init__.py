# SPDX-License-Identifier: Apache-2.0
"""Web crawls: WARC files and the pages in them."""
