# SPDX-License-Identifier: Apache-2.0
"""Compile all kernels; in a separate module, so that Python does not run one that the package has already imported."""

from curator_df.kernels.warm import GROUPS, compile_group

if __name__ == "__main__":
    for name in GROUPS:
        compile_group(name)
