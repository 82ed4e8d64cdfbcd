#!/usr/bin/env python3
"""Checks the form of data/the_salt_road.txt, and that data/README.md counts it rightly."""

import hashlib
import pathlib
import re
import string
import sys

data = pathlib.Path(sys.argv[1])
raw = (data / "the_salt_road.txt").read_bytes()
readme = (data / "README.md").read_text(encoding="utf-8")
failures = []


def check(condition, what):
    if not condition:
        failures.append(what)


text = raw.decode("ascii")
check(len(text) >= 60_000, f"{len(text)} characters, expected at least 60000")
check(len(raw) < 700 * 1024, f"{len(raw)} bytes, expected less than 700 KiB")
check("\r" not in text, "a carriage return")
check(text.endswith("\n") and not text.endswith("\n\n"), "the text does not end in one newline")
for number, line in enumerate(text.split("\n"), start=1):
    check(line == line.rstrip(), f"line {number} ends in blanks")
    check("  " not in line, f"line {number} has two blanks in a row")
missing = set(string.ascii_letters) - set(text)
check(not missing, f"letters that never occur: {sorted(missing)}")

for speech in text[:-1].split("\n\n"):
    check(re.fullmatch(r"[A-Z]+( [A-Z]+)*:(\n[^\n]+)+", speech), f"not a speech: {speech[:60]!r}")

# A text padded by repetition would say some long line again and again; a refrain may come twice.
lines = [line for line in text.split("\n") if len(line) > 20]
for line in set(lines):
    check(lines.count(line) <= 2, f"{lines.count(line)} times: {line!r}")

training = len(text) * 9 // 10
row = (
    f"| `the_salt_road.txt` | {len(text):,} | {len(set(text))} "
    f"| {training:,} / {len(text) - training:,} | `{hashlib.sha256(raw).hexdigest()}` |"
)
check(row in readme.splitlines(), f"data/README.md lacks the row {row}")

for failure in failures:
    print("FAILED:", failure, file=sys.stderr)
sys.exit(1 if failures else 0)
