#!/usr/bin/env python3
"""Faults at every call of the file system that train makes in its run folder.

Usage: fault_test.py FOLDER_OF_PROGRAMS [--every=N] [--scenario=NAME] [--kind=NAME] [--jobs=N]

For each scenario, the run is made once undisturbed and its calls are counted. Then call after call
(every N-th with --every, unless CHARGRAD_THOROUGH is set) the process is ended there, a signal comes, or the call is made to fail;
after that the run must load in sample, go on with another number of threads, and end in the same
files and losses to the bit.
"""
import argparse
import collections
import concurrent.futures
import errno
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile

KILLED = 86
TRAIN = ["--n_layer=1", "--n_head=2", "--n_embd=8", "--block_size=8", "--batch_size=2",
         "--eval_iters=1", "--eval_interval=2", "--warmup_iters=0", "--lr_decay_iters=5",
         "--dropout=0.2", "--gradient_accumulation_steps=2", "--log_interval=1", "--threads=1",
         "--max_iters=5"]
# Kind: how the library is asked for it. From then on, a fault lasts to the end of the process.
KINDS = {
    "kill": {"FAULT_KIND": "kill"},
    "torn": {"FAULT_KIND": "torn"},
    "short": {"FAULT_KIND": "short"},
    "ENOSPC": {"FAULT_KIND": str(errno.ENOSPC)},
    "EIO": {"FAULT_KIND": str(errno.EIO)},
    "EINTR": {"FAULT_KIND": str(errno.EINTR)},
    "ENOSPC from then on": {"FAULT_KIND": str(errno.ENOSPC), "FAULT_TIMES": "0"},
    "EDQUOT from then on": {"FAULT_KIND": str(errno.EDQUOT), "FAULT_TIMES": "0"},
    "SIGINT": {"FAULT_KIND": "-2"},
    "SIGTERM": {"FAULT_KIND": "-15"},
    "SIGINT twice": {"FAULT_KIND": "-2", "FAULT_TIMES": "2"},
    "EROFS for 40 calls": {"FAULT_KIND": str(errno.EROFS), "FAULT_TIMES": "40"},
}
# Kinds that make sense at some calls only.
ONLY_AT = {"torn": {"write"}, "short": {"write"},
           "EINTR": {"open", "write", "fsync", "read", "pread", "flock"}}
# Calls whose failure must be told unless they are part of reading or tidying up.
CHANGES = {"open", "write", "fsync", "rename", "symlink", "mkdir"}


class Fault(AssertionError):
    pass


def check(condition, *what):
    if not condition:
        raise Fault(" ".join(map(str, what)))


class Scenario:
    """A command, the folder that it starts from, and what comes of it undisturbed."""

    def __init__(self, programs, work, name, first=None, args=(), again=None, links=True):
        self.programs, self.work, self.name = programs, work, name
        # LD_PRELOAD takes no blank, which the build's own path may have.
        self.preloaded = work / "libfault.so"
        if not self.preloaded.exists():
            self.preloaded.symlink_to(pathlib.Path(programs).resolve() / "libfault.so")
        self.text = work / "text"
        self.base = work / name / "base"
        self.base.mkdir(parents=True)
        self.new = [f"--data={self.text}", *TRAIN]
        self.args = list(args) or self.new
        if first is None:
            self.new = self.args
        self.again = again  # how the next start is made; None: --resume, or anew without a checkpoint
        if first is not None:
            r = self.train(self.base, first)
            check(r.returncode == 0, r.stderr)
        for link in () if links else (self.base / "last", self.base / "best"):
            target = link.resolve()
            link.unlink()
            shutil.copytree(target, link)
        straight = work / name / "straight"
        shutil.copytree(self.base, straight, symlinks=True)
        log = work / name / "log"
        r = self.train(straight, self.args, FAULT_LOG=str(log))
        check(r.returncode == 0 and not r.stderr, name, r.stderr)
        self.calls = [line.split(" ", 2)[1] for line in log.read_text().splitlines()]

    def train(self, run, args, **environment):
        command = [self.programs / "train", f"--out_dir={run}", *args]
        return subprocess.run(command, capture_output=True, text=True, env={
            **os.environ, "LD_PRELOAD": str(self.preloaded),
            "FAULT_FOLDER": str(run), **environment})

    def sample(self, run):
        command = [self.programs / "sample", f"--out_dir={run}", "--num_samples=1", "--threads=1",
                   "--max_new_tokens=2"]
        return subprocess.run(command, capture_output=True, text=True)

    def result(self, run):
        """All that a run leaves and that must not depend on what happened on the way."""
        files = {link: {f.name: f.read_bytes() for f in (run / link).iterdir()}
                 for link in ("last", "best") if (run / link).exists()}
        # A trace is there or not. A checkpoint that was saved again is the second of its name.
        files["names"] = sorted(re.sub(r"^(ckpt-\d+)-\d+$", r"\1", f.name) for f in run.iterdir()
                                if f.name != "trace.json")
        lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
        files["metrics"] = [{k: v for k, v in line.items() if k not in ("ms", "tokens_per_s")}
                            for line in lines]
        return files

    def compare(self, run, when, saves_failed):
        """A save that failed may have been that of the best model, which then another one is, or of
        all that were evaluated."""
        result, expected = self.result(run), self.result(self.work / self.name / "straight")
        if saves_failed:
            evaluated = [f.name for f in run.glob("ckpt-*")
                         if json.loads((f / "trainer.json").read_text())["val_loss"] is not None]
            check(not evaluated or (run / "best").exists(), when, "no best of", evaluated)
            for of in (result, expected):
                of.pop("best", None)
                of["names"] = [name for name in of["names"]
                               if name != "best" and not name.startswith("ckpt-")]
                of["last"]["trainer.json"] = {k: v for k, v in json.loads(
                    of["last"]["trainer.json"]).items() if k != "best_val_loss"}
        for part in result:
            check(result[part] == expected[part], when, part, "differs:",
                  result[part] if part in ("names", "metrics") else "")

    def try_point(self, at, kind):
        """One fault; returns how the disturbed run ended."""
        folder = pathlib.Path(tempfile.mkdtemp(dir=self.work))
        try:
            return self.outcome(folder / "run", at, kind)
        except (Fault, OSError, subprocess.TimeoutExpired, ValueError) as fault:
            name = self.calls[at - 1]
            raise Fault(f"{self.name}, call {at} of {len(self.calls)} ({name}), {kind}: {fault}")
        finally:
            shutil.rmtree(folder)

    def outcome(self, run, at, kind):
        shutil.copytree(self.base, run, symlinks=True)
        r = self.train(run, self.args, FAULT_AT=str(at), **KINDS[kind])
        # A run that ends early has nothing to show for --profile, and says so.
        told = [line for line in r.stderr.strip().splitlines() if "--profile measured" not in line]
        for line in told:
            check(line.startswith("train: ") and "filesystem error" not in line, r.stderr)
        if kind in ("kill", "torn"):
            check(r.returncode == KILLED, "exit status", r.returncode, r.stderr)
            how = "killed"
        elif kind.startswith("SIG"):
            number = -int(KINDS[kind]["FAULT_KIND"])
            # 0: there was nothing left to stop; the negative one: before train catches signals.
            check(r.returncode in (128 + number, 0, -number), "exit status", r.returncode)
            # A second after the signal, on a machine that is so slow.
            told = [line for line in told if "stopping once the run is saved" not in line]
            check(not told, r.stderr)
            how = f"exit status {r.returncode}"
        elif kind in ONLY_AT:
            how = self.ended(run, r, told)
            check(how == "unnoticed", "noticed:", r.returncode, r.stderr)
        else:
            how = self.ended(run, r, told)
            if self.calls[at - 1] in CHANGES and self.again is None:
                number = int(KINDS[kind]["FAULT_KIND"])
                check(any(os.strerror(number) in line for line in told), "not told:", r.stderr)
        has_checkpoint = any(f.name.startswith("ckpt-") for f in run.iterdir()) if run.exists() \
            else False
        if has_checkpoint and self.again is None:
            s = self.sample(run)
            check(s.returncode == 0, "sample:", s.stderr)
        metrics = run / "metrics.jsonl"
        # A training of which nothing was saved is not thrown away unasked.
        unsaved = metrics.exists() and '"kind":"iter"' in metrics.read_text()
        next_start = self.again or (["--resume", "--max_iters=5"] if has_checkpoint
                                    else [*self.new, "--overwrite"] if unsaved else self.new)
        n = self.train(run, [*next_start, "--threads=2"])
        check(n.returncode == 0 and not n.stderr, "next start:", n.stderr, n.stdout)
        self.compare(run, "after the next start", bool(told))
        return how

    def ended(self, run, r, told):
        """Checks the end of a run that was not stopped."""
        if r.returncode == 0:
            model = "last/model.safetensors"
            check((run / model).read_bytes() ==
                  (self.work / self.name / "straight" / model).read_bytes(), "not saved at exit 0")
            return "told, and went on" if told else "unnoticed"
        check(r.returncode == 1, "exit status", r.returncode, r.stderr)
        check(r.stderr, "exit 1 without a message")
        check(len(told) <= 5, r.stderr)
        if "\niter " not in r.stdout and "\nstep " not in r.stdout:
            return "refused before training"
        check("the last checkpoint could not be saved" in r.stderr or
              "metrics.jsonl could not be written" in r.stderr or
              "settings.json could not be written" in r.stderr or
              "could not be pointed to the best checkpoint" in r.stderr, r.stderr)
        return "the last save failed, exit 1"


def scenarios(programs, work):
    (work / "text").write_text("the quick brown fox jumps over the lazy dog. " * 20)
    text = f"--data={work}/text"
    short = [f for f in TRAIN if "iters=5" not in f]
    yield Scenario(programs, work, "new run")
    three = [text, *short, "--max_iters=3", "--lr_decay_iters=5"]
    go_on = ["--resume", "--max_iters=5"]
    yield Scenario(programs, work, "resume before an evaluation", three, go_on)
    yield Scenario(programs, work, "copy without links", three, go_on, links=False)
    yield Scenario(programs, work, "head model", None,
                   [text, *TRAIN, "--model=head", "--dropout=0", "--profile=1"])
    yield Scenario(programs, work, "overwrite", [text, *TRAIN, "--model=bigram", "--max_iters=2"],
                   [text, *TRAIN, "--overwrite"], [text, *TRAIN, "--overwrite"])


def points(scenario, kind, every, offset):
    """The calls to disturb."""
    for at in range(1, len(scenario.calls) + 1):
        if kind in ONLY_AT and scenario.calls[at - 1] not in ONLY_AT[kind]:
            continue
        if (at + offset) % every == 0:
            yield at


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("programs", type=lambda p: pathlib.Path(p).resolve())
    parser.add_argument("--every", type=int, default=1)
    parser.add_argument("--scenario", default="")
    parser.add_argument("--kind", default="")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    options = parser.parse_args()
    every = 1 if os.environ.get("CHARGRAD_THOROUGH") else options.every
    # A shell's background job ignores it, and train would then, too.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    counts, faults = collections.Counter(), []
    # Thousands of small files: in memory where that can be.
    folder = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="chargrad.", dir=folder) as work, \
            concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        tries = []
        for scenario in scenarios(options.programs, pathlib.Path(work)):
            if options.scenario not in scenario.name:
                continue
            print(f"{scenario.name}: {len(scenario.calls)} calls")
            for offset, kind in enumerate(KINDS):
                if options.kind in kind:
                    tries += [(kind, pool.submit(scenario.try_point, at, kind))
                              for at in points(scenario, kind, every, offset)]
        for kind, future in tries:
            try:
                counts[kind, future.result()] += 1
            except Fault as fault:
                faults.append(str(fault))
                print("FAULT", fault, flush=True)
    for kind in {kind for kind, _ in tries if kind.startswith("SIG")}:
        number = -int(KINDS[kind]["FAULT_KIND"])
        if not counts[kind, f"exit status {128 + number}"]:
            faults.append(kind)
            print("FAULT", kind, "stopped no run")
    for (kind, how), count in sorted(counts.items()):
        print(f"{count:6} x {kind}: {how}")
    print(f"{len(tries)} points, {len(faults)} faults")
    return 1 if faults or not tries else 0


if __name__ == "__main__":
    sys.exit(main())
