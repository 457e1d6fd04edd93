# SPDX-License-Identifier: Apache-2.0
"""MinHash signatures, the pairs that their bands suggest, exact similarity, and groups."""
