# SPDX-License-Identifier: Apache-2.0
"""FastText's supervised models, evaluated on text buffers."""
