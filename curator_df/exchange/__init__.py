# SPDX-License-Identifier: Apache-2.0
"""All-to-all exchange of keys through sorted files, and the deferred operations that need it."""
