# SPDX-License-Identifier: Apache-2.0
"""All-to-all of keys through sorted files, and the pending drops that need it."""
