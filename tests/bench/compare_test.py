#!/usr/bin/env python3
"""compare.py where PyTorch is not installed."""

import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

COMPARE = Path(__file__).with_name("compare.py")


def run_without_torch(*args):
    """Whatever is installed: a module comes before it that says what Python says of a missing one."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "torch.py").write_text(
            "raise ModuleNotFoundError(\"No module named 'torch'\", name='torch')\n")
        return subprocess.run([sys.executable, COMPARE, *args], text=True, capture_output=True,
                              check=False, env={**os.environ, "PYTHONPATH": folder})


class WithoutTorch(unittest.TestCase):
    def test_help(self):
        result = run_without_torch("--help")
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        self.assertIn("usage: compare.py", result.stdout)

    def test_one_line_says_what_is_missing(self):
        result = run_without_torch("step")
        self.assertEqual(result.returncode, 1)
        self.assertEqual(result.stderr, f"compare: {sys.executable} has no torch; run this with an "
                                        "interpreter that has\n")


if __name__ == "__main__":
    unittest.main()
