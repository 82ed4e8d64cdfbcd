"""Our side of compare.py: the programs bench and train, which run as processes of their own."""

import json
import os
import signal
import subprocess
import time
from pathlib import Path


class Bench:
    """bench FLAG=WHAT, which answers each number with seconds and processor seconds of calls."""

    def __init__(self, program, flag, *what):
        self.process = subprocess.Popen([program, f"{flag}={','.join(map(str, what))}"], text=True,
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def run(self, count):
        print(count, file=self.process.stdin, flush=True)
        words = [float(word) for word in self.process.stdout.readline().split()]
        if not words:
            raise SystemExit(f"compare: the bench program ended, status {self.process.wait()}")
        return list(zip(words[::2], words[1::2]))

    def close(self):
        """Ends the process; returns its largest memory in bytes."""
        self.process.stdin.close()
        _, status, usage = os.wait4(self.process.pid, 0)
        self.process.returncode = os.waitstatus_to_exitcode(status)
        return usage.ru_maxrss * 1024


class BenchText(Bench):
    """The same of characters, whose times come together."""

    def run(self, count):
        return [tuple(seconds / count for seconds in super().run(count)[0])]


class Training:
    """The train program; it only runs while run_for() waits, which adds up in `seconds`."""

    def __init__(self, program, folder, *flags):
        self.folder, self.seconds = Path(folder), 0.0
        self.process = subprocess.Popen([program, f"--out_dir={folder}", *flags],
                                        stdout=subprocess.DEVNULL)
        os.kill(self.process.pid, signal.SIGSTOP)

    def run_for(self, seconds=None):
        """True while there is more to do."""
        if self.process.returncode is not None:
            return False
        start = time.perf_counter()
        os.kill(self.process.pid, signal.SIGCONT)
        try:
            self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            os.kill(self.process.pid, signal.SIGSTOP)
        self.seconds += time.perf_counter() - start
        if self.process.returncode:
            raise SystemExit(f"compare: train failed, status {self.process.returncode}")
        return self.process.returncode is None

    def stop(self):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()

    def metrics(self, kind, name):
        lines = (self.folder / "metrics.jsonl").read_text().splitlines()
        return [row[name] for row in map(json.loads, lines) if row["kind"] == kind]
