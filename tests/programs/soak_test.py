#!/usr/bin/env python3
"""A long run of the tiny preset: memory and open files stay as they were after the first steps.

Usage: soak_test.py FOLDER_OF_PROGRAMS [STEPS]

Without STEPS, and where CHARGRAD_THOROUGH is set, 100,000, which take some minutes.
"""
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from programs_test import KEEP_NOTHING  # noqa: E402

WARM_UP = 1000  # steps after which nothing may grow
GROWTH = 2048  # kB that memory may
EVERY = 250  # steps between evaluations, each with a checkpoint


def resident(pid):
    """kB of memory that the process holds."""
    status = pathlib.Path(f"/proc/{pid}/status").read_text()
    return int(status.split("VmRSS:")[1].split()[0])


def steps_done(metrics):
    try:
        with open(metrics, "rb") as file:
            file.seek(max(0, os.path.getsize(metrics) - 400))
            return json.loads(file.read().splitlines()[-1])["iter"]
    except (OSError, IndexError, ValueError):
        return 0


def watch(process, metrics):
    """Memory and open files after the warm-up, and their highest values from then on."""
    first, peak, looks = None, (0, 0), 0
    while process.poll() is None:
        time.sleep(0.02)
        try:
            if steps_done(metrics) >= WARM_UP:
                now = resident(process.pid), len(os.listdir(f"/proc/{process.pid}/fd"))
                first = first or now
                peak = max(peak[0], now[0]), max(peak[1], now[1])
                looks += 1
        except (OSError, IndexError):
            break  # it has just ended
    assert process.wait() == 0, f"exit status {process.returncode}"
    assert first, "it ended before the warm-up did"
    return first, peak, looks


def check_metrics(metrics, steps):
    lines = [json.loads(line) for line in metrics.read_text().splitlines()]
    iters = [line["iter"] for line in lines if line["kind"] == "iter"]
    evals = [line["iter"] for line in lines if line["kind"] == "eval"]
    assert iters == list(range(0, steps + 1, 10)), "iterations are missing from the metrics"
    assert evals == list(range(0, steps + 1, EVERY)), "evaluations are missing from the metrics"
    return len(lines)


def main():
    programs = pathlib.Path(sys.argv[1]).resolve()
    short = len(sys.argv) > 2 and not os.environ.get("CHARGRAD_THOROUGH")
    steps = int(sys.argv[2]) if short else 100000
    text = pathlib.Path(__file__).resolve().parents[2] / "data/the_salt_road.txt"
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    folder = pathlib.Path(tempfile.mkdtemp(prefix="chargrad.", dir=memory))
    try:
        run = folder / "run"
        process = subprocess.Popen(
            [programs / "train", f"--data={text}", f"--out_dir={run}", "--preset=tiny",
             f"--max_iters={steps}", f"--eval_interval={EVERY}", "--eval_iters=2",
             "--log_interval=10", "--threads=1"], stdout=subprocess.DEVNULL, env=KEEP_NOTHING)
        first, peak, looks = watch(process, run / "metrics.jsonl")
        lines = check_metrics(run / "metrics.jsonl", steps)
        print(f"{steps} steps, {steps // EVERY + 1} evaluations with checkpoints: memory after "
              f"{WARM_UP} steps {first[0]} kB, at most {peak[0]} kB after that; open files "
              f"{first[1]}, at most {peak[1]}; {looks} looks; {lines} whole lines of metrics")
        assert peak[0] - first[0] <= GROWTH, "memory grows"
        # While a checkpoint is written one or two more are open; a leak would be one each.
        assert peak[1] - first[1] <= 4, "open files grow"
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
