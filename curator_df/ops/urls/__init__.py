# SPDX-License-Identifier: Apache-2.0
"""Operators for URLs of crawled pages."""
