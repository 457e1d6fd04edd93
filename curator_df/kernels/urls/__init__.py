# SPDX-License-Identifier: Apache-2.0
"""Hosts, registered domains and paths of URLs, and lookups of them in lists."""
