#!/usr/bin/env python3
"""Runs every command that README.md shows with a $, in its order, in a folder of their own.

Usage: readme_test.py SOURCE_FOLDER FOLDER_OF_PROGRAMS
"""
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile

source, programs = (pathlib.Path(p).resolve() for p in sys.argv[1:3])
readme = (source / "README.md").read_text()
commands = re.findall(r"(?m)^\$ (.+)$", readme)
assert len(commands) >= 3, f"README.md shows {len(commands)} commands"
assert "./run demo" in readme and "./run test" in readme

with tempfile.TemporaryDirectory(prefix="chargrad.") as folder:
    folder = pathlib.Path(folder)
    (folder / "build").mkdir()
    (folder / "build/release").symlink_to(programs)
    (folder / "data").symlink_to(source / "data")
    for command in commands:
        r = subprocess.run(shlex.split(command), cwd=folder, capture_output=True, text=True)
        assert r.returncode == 0, f"{command}: exit {r.returncode}, {r.stderr}"
        assert r.stdout, f"{command}: prints nothing"
        print("ok:", command)
links = re.findall(r"\]\(([^)#]+)\)", readme)
missing = [link for link in links if not (source / link).exists()]
assert not missing, f"README.md links to {missing}"
