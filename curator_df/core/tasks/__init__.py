# SPDX-License-Identifier: Apache-2.0
"""One range on a worker."""
