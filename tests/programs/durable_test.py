#!/usr/bin/env python3
"""What a run survives: folders that change under way, odd data files, other machines.

Usage: durable_test.py FOLDER_OF_PROGRAMS Class.method
"""
import json
import os
import pathlib
import resource
import shutil
import subprocess
import sys
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from programs_test import BIN, SANITIZED, TINY, Programs  # noqa: E402

NOBODY = 65534


def as_nobody(test):
    """What subprocess is to be told so that permissions count: root would not be stopped."""
    if os.geteuid() != 0:
        return {}
    os.chown(test.dir, NOBODY, NOBODY)
    user = {"user": NOBODY, "group": NOBODY, "extra_groups": []}
    try:
        subprocess.run([BIN / "train", "--help"], check=True, stdout=subprocess.DEVNULL, **user)
    except (OSError, subprocess.CalledProcessError):
        test.skipTest("the programs are out of reach for another user")
    return user


class Endurance(Programs):
    """Runs whose folder changes under way."""

    def setUp(self):
        super().setUp()
        self.file = self.text("the quick brown fox jumps over the lazy dog. " * 60)
        self.run_folder = self.dir / "run"

    def start(self, *args, **kw):
        """A run without an end, once it has saved; SIGTERM ends it with a save."""
        flags = [f for f in TINY if not f.startswith("--max_iters")]
        p = subprocess.Popen([BIN / "train", f"--data={self.file}", f"--out_dir={self.run_folder}",
                              *flags, "--max_iters=100000000", "--eval_interval=5", "--threads=1",
                              *args], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
                             **kw)
        self.addCleanup(p.stderr.close)
        self.addCleanup(p.wait)
        self.addCleanup(p.kill)
        self.wait(lambda: (self.run_folder / "last").exists())
        return p

    def wait(self, condition):
        while not condition():
            time.sleep(0.02)

    def told(self, p, text):
        line = p.stderr.readline()
        self.assertIn(text, line)
        self.assertTrue(line.startswith("train: "), line)

    def resumes(self):
        r = self.run_program("train", f"--out_dir={self.run_folder}", "--resume", "--max_iters=0")
        self.assertEqual(r.returncode, 0, r.stderr)

    def test_a_folder_that_is_removed_and_made_anew(self):
        p = self.start()
        aside = self.dir / "aside"
        self.run_folder.rename(aside)  # in one step: the run must not write in between
        self.told(p, "No such file or directory")
        self.run_folder.mkdir()
        self.wait(lambda: (self.run_folder / "last").exists())
        p.terminate()
        self.assertEqual(p.wait(), 143)
        self.assertTrue((self.run_folder / "settings.json").exists())
        self.resumes()

    def test_settings_that_are_removed(self):
        p = self.start()
        settings = self.run_folder / "settings.json"
        before = settings.read_bytes()
        settings.unlink()
        self.wait(settings.exists)
        self.assertEqual(settings.read_bytes(), before)
        p.terminate()
        self.assertEqual(p.wait(), 143)
        self.resumes()

    def test_a_file_in_the_way_of_the_settings(self):
        p = self.start()
        settings = self.run_folder / "settings.json"
        mine = self.dir / "mine"
        mine.write_text('{"mine": 1}')
        mine.rename(settings)
        self.told(p, "settings.json is in the way and no part of a run")
        last = os.readlink(self.run_folder / "last")
        self.wait(lambda: os.readlink(self.run_folder / "last") != last)
        p.terminate()
        self.assertEqual(p.wait(), 1)
        self.assertEqual(settings.read_text(), '{"mine": 1}')
        self.sample(self.run_folder)

    def test_a_folder_that_is_removed_for_good(self):
        p = self.start()
        aside = self.dir / "aside"
        self.run_folder.rename(aside)
        shutil.rmtree(aside)
        self.told(p, "No such file or directory")
        p.terminate()
        self.assertEqual(p.wait(), 1)
        self.assertIn("the last checkpoint could not be saved", p.stderr.read())

    def test_a_folder_that_becomes_read_only(self):
        p = self.start(**as_nobody(self))
        self.run_folder.chmod(0o500)
        self.told(p, "Permission denied")
        last = os.readlink(self.run_folder / "last")
        self.sample(self.run_folder)
        self.run_folder.chmod(0o700)
        self.wait(lambda: os.readlink(self.run_folder / "last") != last)
        p.terminate()
        self.assertEqual(p.wait(), 143)
        self.resumes()

    def test_a_limit_on_the_size_of_files(self):
        limit = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (20000, resource.RLIM_INFINITY))
        r = self.run_program("train", f"--data={self.file}", f"--out_dir={self.run_folder}", *TINY,
                             preexec_fn=limit)
        self.assertEqual(r.returncode, 1)
        self.assertIn(b"trainer.safetensors: File too large", r.stderr)
        self.assertIn(b"the last checkpoint could not be saved", r.stderr)

    def test_lost_metrics_are_an_error(self):
        limit = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (100000, resource.RLIM_INFINITY))
        r = self.run_program("train", f"--data={self.file}", f"--out_dir={self.run_folder}", *TINY,
                             "--max_iters=1500", "--log_interval=1", preexec_fn=limit)
        metrics = self.run_folder / "metrics.jsonl"
        self.assertEqual(r.returncode, 1)
        self.assertTrue(r.stderr.decode().startswith(f"train: cannot write {metrics}: File too large\n"))
        self.assertTrue(r.stderr.decode().endswith(
            f"train: the last lines of {metrics} could not be written\n"))
        self.assertEqual(os.readlink(self.run_folder / "last"), "ckpt-001501")

    def test_a_link_that_leads_nowhere(self):
        self.train(self.file)
        (self.run_folder / "last").unlink()
        (self.run_folder / "last").symlink_to("ckpt-000009")
        notice = (f"{self.run_folder}/last leads to no checkpoint: going on from "
                  "ckpt-000004")
        r = self.run_program("train", f"--out_dir={self.run_folder}", "--resume", "--eval_only")
        self.assertIn(notice, r.stdout.decode())
        r = self.run_program("train", f"--out_dir={self.run_folder}", "--resume", "--max_iters=5")
        self.assertEqual(r.returncode, 0, r.stderr)
        self.assertIn(notice, r.stdout.decode())

    def test_a_best_whose_link_is_lost(self):
        self.train(self.file, "--eval_interval=2", "--learning_rate=1e-9", "--min_lr=1e-9")
        best = self.run_folder / "best"
        name = os.readlink(best)
        best.unlink()
        r = self.run_program("train", f"--out_dir={self.run_folder}", "--resume", "--max_iters=5",
                             "--learning_rate=1", "--min_lr=1")
        self.assertEqual((r.returncode, r.stderr), (0, b""))
        self.assertEqual(os.readlink(best), name)
        shutil.rmtree(self.run_folder / name)
        r = self.run_program("train", f"--out_dir={self.run_folder}", "--resume", "--max_iters=8")
        self.assertEqual((r.returncode, r.stderr), (0, b""))
        self.assertRegex(r.stdout.decode(), r"(?m)^no checkpoint is known to have the best "
                         r"validation loss so far, \d\.\d+: the next evaluation is the best$")
        self.assertTrue(best.exists())

    def test_a_folder_that_may_not_be_written_is_refused_at_once(self):
        user = as_nobody(self)
        r = self.run_program("train", f"--data={self.file}", f"--out_dir={self.run_folder}", *TINY,
                             **user)
        self.assertEqual(r.returncode, 0, r.stderr)
        self.run_folder.chmod(0o500)
        r = self.run_program("train", f"--out_dir={self.run_folder}", "--resume", "--max_iters=9",
                             **user)
        self.run_folder.chmod(0o700)
        self.assertEqual(r.returncode, 1)
        self.assertEqual(r.stderr.decode(),
                         f"train: cannot write in {self.run_folder}: Permission denied\n")

    def test_settings_of_a_run_that_did_not_go_on(self):
        self.train(self.file)
        before = (self.run_folder / "settings.json").read_bytes()
        message = self.fails("train", f"--out_dir={self.run_folder}", "--resume", "--max_iters=50",
                             "--learning_rate=1e30", "--grad_clip=0", "--eval_interval=1000")
        self.assertIn("is not finite at iteration", message)
        self.assertEqual((self.run_folder / "settings.json").read_bytes(), before)
        r = self.run_program("train", f"--out_dir={self.run_folder}", "--resume", "--max_iters=5")
        self.assertEqual(r.returncode, 0, r.stderr)
        stored = json.loads((self.run_folder / "settings.json").read_text())["settings"]
        self.assertEqual(stored["max_iters"], 5)

    def test_a_checkpoint_that_cannot_be_read_removes_none(self):
        self.train(self.file)
        shutil.copytree(self.run_folder / "ckpt-000004", self.run_folder / "ckpt-000009")
        (self.run_folder / "last/trainer.json").write_text("{")
        message = self.fails("train", f"--out_dir={self.run_folder}", "--resume")
        self.assertIn("trainer.json", message)
        self.assertTrue((self.run_folder / "ckpt-000009/model.safetensors").exists())

    def test_a_second_checkpoint_of_an_iteration(self):
        # The evaluation after iteration 3 is due when the run goes on.
        second = ["--resume", "--max_iters=4"]
        self.train(self.file, "--eval_interval=4", "--eval_iters=1")
        for _ in range(2):
            r = self.run_program("train", f"--out_dir={self.run_folder}", *second)
            self.assertEqual((r.returncode, r.stderr), (0, b""))
        self.assertEqual(sorted(os.listdir(self.run_folder)), sorted(
            ["lock", "settings.json", "metrics.jsonl", "best", "last",
             *{os.readlink(self.run_folder / link) for link in ("best", "last")}]))

    def test_a_copy_without_links_goes_on(self):
        copies = [self.dir / "copy", self.dir / "copy2"]
        self.train(self.file)
        for copy in copies:
            shutil.copytree(self.run_folder, copy)  # follows the links
        for run in (self.run_folder, *copies):
            message = self.fails("train", f"--data={self.file}", f"--out_dir={run}")
            self.assertIn("--resume goes on with it, --overwrite replaces it", message)
            r = self.run_program("train", f"--out_dir={run}", "--resume", "--max_iters=6")
            self.assertEqual((r.returncode, r.stderr), (0, b""))
            self.assertEqual({f.name: f.read_bytes() for f in (run / "last").iterdir()},
                             {f.name: f.read_bytes() for f in (self.run_folder / "last").iterdir()})
        r = self.run_program("train", f"--data={self.file}", f"--out_dir={copies[1]}", *TINY,
                             "--overwrite")
        self.assertEqual(r.returncode, 0, r.stderr)

    def test_two_runs_on_one_folder(self):
        self.start()
        for flag in ("--overwrite", "--resume"):
            message = self.fails("train", f"--data={self.file}", f"--out_dir={self.run_folder}",
                                 flag)
            self.assertIn("is in use by another training run", message)

    def test_another_cpu_is_noticed(self):
        run = self.train(self.file)
        r = self.run_program("train", f"--out_dir={run}", "--resume", "--max_iters=4")
        self.assertNotIn(b"kernels from here on", r.stdout)
        other = {**os.environ, "CHARGRAD_CPU": "ref"}
        r = self.run_program("train", f"--out_dir={run}", "--resume", "--max_iters=6", env=other)
        self.assertEqual(r.returncode, 0, r.stderr)
        self.assertRegex(r.stdout.decode(), r"(?m)^ref kernels from here on, \w+ before: ")
        self.assertEqual(json.loads((run / "settings.json").read_text())["kernels"], "ref")

    def test_nothing_left_to_do(self):
        run = self.train(self.file)
        before = (run / "settings.json").read_bytes()
        for flags in ([], ["--max_iters=1"]):
            r = self.run_program("train", f"--out_dir={run}", "--resume", *flags)
            self.assertEqual(r.returncode, 0)
            self.assertIn(b"nothing left to do: the iterations up to 3 are done", r.stdout)
        self.assertEqual((run / "settings.json").read_bytes(), before)

    def test_nan_losses_have_no_sign(self):
        message = self.fails("train", f"--data={self.file}", f"--out_dir={self.run_folder}", *TINY,
                             "--learning_rate=1e30", "--grad_clip=0", "--max_iters=50", status=(1,))
        self.assertIn("is not finite at iteration", message)
        self.assertNotIn("-nan", message)


class OddData(Programs):
    """Data files that are no plain text files."""

    def bounded(self, text, megabytes=1000, flags=()):
        """train with that much address space; its one message."""
        limit = resource.RLIM_INFINITY if SANITIZED else megabytes << 20
        r = self.run_program("train", f"--data={text}", f"--out_dir={self.dir}/run", *TINY,
                             "--threads=1", *flags, preexec_fn=lambda: resource.setrlimit(
                                 resource.RLIMIT_AS, (limit, limit)))
        self.assertEqual(r.returncode, 1, r.stderr)
        self.assertEqual(len(r.stderr.splitlines()), 1, r.stderr)
        return r.stderr.decode()

    def test_a_pipe_and_a_device(self):
        os.mkfifo(self.dir / "pipe")
        self.assertIn("pipe: Not a regular file", self.bounded(self.dir / "pipe"))
        self.assertIn("/dev/zero: Not a regular file", self.bounded("/dev/zero"))

    def test_a_file_that_may_not_be_read(self):
        text = self.text("abc" * 400)
        text.chmod(0)
        r = self.run_program("train", f"--data={text}", f"--out_dir={self.dir}/run", *TINY,
                             **as_nobody(self))
        self.assertEqual(r.returncode, 1)
        self.assertEqual(r.stderr.decode(), f"train: cannot open {text}: Permission denied\n")

    @unittest.skipIf(SANITIZED, "no limit on the memory of a sanitizer's program")
    def test_a_sparse_file_beyond_the_memory(self):
        size = 5 << 30 if os.environ.get("CHARGRAD_THOROUGH") else 400 << 20
        text = self.text("")
        os.truncate(text, size)
        message = self.bounded(text, size // 2 >> 20)
        self.assertIn(f"{text} is too large for the memory: {size} characters", message)

    @unittest.skipIf(SANITIZED, "no limit on the memory of a sanitizer's program")
    def test_a_model_beyond_the_memory(self):
        text = self.text("abc" * 400)
        message = self.bounded(text, flags=["--n_embd=16384"])
        self.assertRegex(message, r"^train: tensor: out of memory, cannot allocate [0-9]+ bytes "
                         r"for shape \[[0-9]+, 16384\]$")

    def test_a_file_that_grows(self):
        text = self.text("abc\n" * 2000000)
        writer = subprocess.Popen(["sh", "-c", f"while :; do echo abc >> '{text}'; done"])
        self.addCleanup(writer.wait)
        self.addCleanup(writer.kill)
        self.assertIn("changed while it was being read", self.bounded(text))


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[2:]])
