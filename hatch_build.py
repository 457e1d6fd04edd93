# SPDX-License-Identifier: Apache-2.0
"""Build hook: with CURATOR_DF_WHEEL_CPU set, a wheel carries kernels compiled for that CPU baseline; without it, it is pure."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

VARIABLE = "CURATOR_DF_WHEEL_CPU"
COMPILE = "import sys, pathlib; from curator_df.kernels.compiling.shipped_kernels import compile_for; "
COMPILE += "compile_for(sys.argv[1], pathlib.Path(sys.argv[2]))"


class CompiledKernels(BuildHookInterface):
    """Compiles all kernels, and adds them to the wheel."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile the kernels if a baseline was named."""
        baseline = os.environ.get(VARIABLE)
        if not baseline or self.target_name != "wheel" or version == "editable":
            return
        self._folder = tempfile.TemporaryDirectory()
        environment = {**os.environ, "PYTHONPATH": self.root}
        command = [sys.executable, "-c", COMPILE, baseline, self._folder.name]
        done = subprocess.run(command, cwd=self.root, env=environment, check=False)
        if done.returncode:
            raise RuntimeError(
                f"{VARIABLE}={baseline} asks for a wheel with compiled kernels, but they could not be compiled (see above). "
                "Install curator_df's dependencies and hatchling, and build with `pip wheel . --no-deps --no-build-isolation`"
            )
        for path in Path(self._folder.name).glob("*/*.nbc"):
            build_data["force_include"][str(path)] = f"curator_df/kernels/machine_code/{path.parent.name}/{path.name}"
        build_data["pure_python"] = False
        build_data["infer_tag"] = True

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:  # noqa: ARG002
        """Delete what was compiled, once it is in the wheel."""
        if hasattr(self, "_folder"):
            self._folder.cleanup()
