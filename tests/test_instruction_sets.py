"""Tests of numerics hold on CPUs with other instruction sets than this one's, too."""

import os
import subprocess
import sys
from pathlib import Path

OLDEST = {"ATEN_CPU_CAPABILITY": "default", "ONEDNN_MAX_CPU_ISA": "SSE41"}
TESTS = [
    "tests/drafters/test_sampling.py",
    "tests/multidraft/training/test_medusa.py::test_the_loss_is_that_of_each_head_at_each_position",
    "tests/multidraft/training/test_medusa.py::test_features_are_the_targets_states_at_the_precision_of_the_device",
]


def test_numerics_hold_on_the_oldest_instruction_set() -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *TESTS]
    root = Path(__file__).parents[1]
    done = subprocess.run(command, cwd=root, env={**os.environ, **OLDEST}, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
