# SPDX-License-Identifier: Apache-2.0
"""Similar vectors: a pass that stores them, clusters, and the rows that are alike in each."""
