#!/usr/bin/env python3
"""Standard streams that are full or closed, disks that are full.

Usage: output_test.py FOLDER_OF_PROGRAMS Class.method
"""
import fcntl
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from programs_test import BIN, TINY, Programs  # noqa: E402


class Output(Programs):
    def test_lost_output_is_an_error(self):
        for program in ("train", "sample", "gradcheck"):
            with open("/dev/full", "wb") as full:
                r = subprocess.run([BIN / program, "--help"], stdout=full, stderr=subprocess.PIPE)
            self.assertEqual(r.returncode, 1, program)
            self.assertIn(b"cannot write to the standard output", r.stderr)

    def test_lost_output_is_told_once(self):
        text = self.text("the quick brown fox " * 60)
        with open("/dev/full", "wb") as full:
            r = subprocess.run([BIN / "train", f"--data={text}", f"--out_dir={self.dir}/run", *TINY],
                               stdout=full, stderr=subprocess.PIPE)
        self.assertEqual(r.returncode, 1)
        self.assertEqual(r.stderr, b"train: cannot write to the standard output; the training goes "
                                   b"on without it\n")
        self.assertEqual(self.sample(self.dir / "run", "--init_from=resume"),
                         self.sample(self.dir / "run"))

    def test_an_error_that_cannot_be_told_is_still_an_error(self):
        run = self.train(self.text("the quick brown fox " * 60))
        for command, status in ((["train", "--lr=3"], 2), (["sample", f"--out_dir={self.dir}/no"], 1),
                                (["sample", f"--out_dir={run}", "--verbose",
                                  "--max_new_tokens=2"], 0),
                                (["gradcheck", "--lsit"], 2)):
            with open("/dev/full", "wb") as full:
                r = subprocess.run([BIN / command[0], *command[1:]], stderr=full,
                                   stdout=subprocess.DEVNULL)
            self.assertEqual(r.returncode, status, command)

    def test_a_warning_that_cannot_be_told_does_not_stop_a_run(self):
        run = self.train(self.text("the quick brown fox " * 60))
        (run / "trace.json").mkdir()
        with open("/dev/full", "wb") as full:
            r = subprocess.run([BIN / "train", *TINY, f"--out_dir={run}", "--profile=1",
                                "--max_iters=9", "--resume"],
                               stderr=full, stdout=subprocess.DEVNULL)
        self.assertEqual(r.returncode, 0)

    def test_closed_streams_are_not_taken_for_files(self):
        text = self.text("the quick brown fox " * 60)
        for streams in ((1,), (0, 1), (0, 1, 2), (2,)):
            run = self.dir / f"run{len(streams)}{streams[0]}"
            r = subprocess.run([BIN / "train", f"--data={text}", f"--out_dir={run}", *TINY,
                                "--log_interval=1"], capture_output=True,
                               preexec_fn=lambda: [os.close(stream) for stream in streams])
            self.assertEqual(r.returncode, 0 if streams == (2,) else 1, r.stderr)
            self.assertEqual((run / "lock").read_bytes(), b"")
            self.assertEqual(len(self.metrics(run, "iter")), 4)

    def stopped_unread(self, run, *, errors_too):
        """train on a pipe that nobody reads, stopped once: what it wrote to stderr if that is not
        the same pipe, and the metrics' iterations."""
        if os.environ.get("CHARGRAD_SANITIZE") == "thread":
            self.skipTest("ThreadSanitizer keeps a signal until the write that waits has returned")

        def before_train():
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGALRM])  # as a parent may have

        reader, writer = os.pipe()
        fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, 4096)
        with subprocess.Popen([BIN / "train", f"--data={self.text('the quick brown fox. ' * 60)}",
                               f"--out_dir={run}", *TINY, "--max_iters=100000", "--log_interval=1"],
                              stdout=writer, stderr=writer if errors_too else subprocess.PIPE,
                              preexec_fn=before_train) as r:
            os.close(writer)
            before, now = 0, 0
            while now == 0 or now > before:  # until it waits in a write
                time.sleep(0.3)
                before, now = now, sum(p.stat().st_size for p in run.glob("metrics.jsonl"))
            r.send_signal(signal.SIGINT)
            message = "" if errors_too else r.stderr.read().decode()
            self.assertEqual(r.wait(), 130)
        os.close(reader)
        return message, len(self.metrics(run, "iter"))

    def test_a_pipe_that_nobody_reads_keeps_no_run_from_being_saved(self):
        run = self.dir / "run"
        message, iterations = self.stopped_unread(run, errors_too=False)
        self.assertGreater(iterations, 0)
        self.assertLessEqual(len(message.splitlines()), 3)
        self.assertTrue(message.endswith(f"train: stopped before iteration {iterations}; go on "
                                         f"with: train --out_dir={run} --resume\n"), message)
        self.assertEqual(os.readlink(run / "last"), f"ckpt-{iterations:06}")

    def test_a_pipe_that_nobody_reads_may_be_that_of_the_errors(self):
        run = self.dir / "run"
        _, iterations = self.stopped_unread(run, errors_too=True)
        self.assertGreater(iterations, 0)
        self.assertEqual(os.readlink(run / "last"), f"ckpt-{iterations:06}")

    def test_a_short_run_names_the_checkpoint_to_sample(self):
        text = self.text("the quick brown fox jumps over the lazy dog. " * 60)
        for interval, flag in ((1000, " --checkpoint=last"), (2, "")):
            run = self.dir / f"run{interval}"
            r = self.run_program("train", f"--data={text}", f"--out_dir={run}", *TINY,
                                 f"--eval_interval={interval}", "--learning_rate=0.1")
            self.assertTrue(r.stdout.decode().endswith(f"; sample --out_dir={run}{flag}\n"),
                            r.stdout)

    def small_disk(self, size):
        return self.mounted("-t", "tmpfs", "-o", f"size={size}", "tmpfs")

    def mounted(self, *what):
        disk = self.dir / "disk"
        disk.mkdir()
        mount = ["mount", *what, disk]
        if os.geteuid() != 0 or subprocess.run(mount, capture_output=True).returncode != 0:
            self.skipTest("cannot mount a small disk here")
        self.addCleanup(subprocess.run, ["umount", disk])
        return disk

    def test_a_disk_without_room_is_refused(self):
        disk = self.small_disk("1000k")
        text = self.text("the quick brown fox jumps over the lazy dog. " * 60)
        run = disk / "run"

        def train(n_embd, *flags):
            return self.run_program("train", f"--data={text}", f"--out_dir={run}", *TINY,
                                    f"--n_embd={n_embd}", *flags)

        def files():
            return {p: p.read_bytes() for p in sorted(run.rglob("*")) if p.is_file()}

        def bytes_asked_for(r):
            self.assertEqual(r.returncode, 1)
            message = r.stderr.decode()
            self.assertRegex(message, f"^train: the disk of {run} has room for [0-9]+ bytes, "
                             "([23] checkpoints need|a checkpoint needs) [0-9]+\n$")
            return int(message.split()[-1])

        bytes_asked_for(train(96))
        self.assertEqual(os.listdir(run), [])
        self.assertEqual(train(32).returncode, 0)
        kept = files()
        (disk / "other").write_bytes(bytes(os.statvfs(disk).f_bavail * 4096 - 8192))
        # Not in the room of the run that is there.
        three = bytes_asked_for(train(32, "--overwrite"))
        others = bytes_asked_for(self.run_program("train", f"--out_dir={run}", "--resume",
                                                  "--max_iters=5"))
        there = len(list(run.glob("ckpt-*")))
        self.assertEqual(3 * others, (3 - there) * three)
        self.assertGreater(three, 3 * sum(p.stat().st_size for p in
                                          (run / "last").resolve().iterdir()))
        of_double = bytes_asked_for(train(32, "--overwrite", "--dtype=float64"))
        weights = (run / "last" / "model.safetensors").stat().st_size
        self.assertGreater(of_double - three, 3 * 2.5 * weights)
        mask = 4 * 256 * 256
        self.assertGreater(bytes_asked_for(train(8, "--overwrite", "--model=head",
                                                 "--block_size=256")), 3 * mask)
        self.assertEqual(files(), kept)

    def test_blocks_that_are_kept_for_root_are_no_room(self):
        image = self.dir / "image"
        image.write_bytes(b"")
        os.truncate(image, 16 << 20)
        mkfs = shutil.which("mkfs.ext4", path=os.environ["PATH"] + ":/usr/sbin")
        if mkfs is None:
            self.skipTest("no mkfs.ext4 here")
        subprocess.run([mkfs, "-q", "-F", "-m", "50", image], check=True)
        disk = self.mounted("-o", "loop", image)

        def bytes_of(blocks):
            return getattr(os.statvfs(disk), blocks) * os.statvfs(disk).f_frsize

        (disk / "other").write_bytes(bytes(bytes_of("f_bavail") - (64 << 10)))
        self.assertGreater(bytes_of("f_bfree"), 4 << 20)
        r = self.run_program("train", f"--data={self.text('the quick brown fox. ' * 60)}",
                             f"--out_dir={disk}/run", *TINY)
        self.assertEqual(r.returncode, 1)
        self.assertRegex(r.stderr, b"^train: the disk of .* has room for [0-9]{1,5} bytes, ")

    def test_a_disk_with_the_room_that_is_asked_for_is_large_enough(self):
        disk = self.small_disk("1000k")
        run = disk / "run"
        flags = [f"--data={self.text('the quick brown fox. ' * 60)}", f"--out_dir={run}", *TINY,
                 "--max_iters=400", "--eval_interval=10", "--learning_rate=0.01"]
        other = disk / "other"
        other.write_bytes(bytes(os.statvfs(disk).f_bavail * 4096 - 8192))
        room = int(self.run_program("train", *flags).stderr.split()[-1])
        os.truncate(other, other.stat().st_size - room)
        r = self.run_program("train", *flags)
        self.assertEqual((r.returncode, r.stderr), (0, b""))
        self.assertNotEqual((run / "best").resolve(), (run / "last").resolve())

    def test_a_disk_that_fills_is_told_once(self):
        disk = self.small_disk("400k")
        r = self.run_program("train", f"--data={self.text('the quick brown fox. ' * 60)}",
                             f"--out_dir={disk}/run", *TINY, "--max_iters=20000",
                             "--eval_interval=50", "--log_interval=1")
        message = r.stderr.decode()
        self.assertEqual(r.returncode, 1)
        self.assertLessEqual(len(message.splitlines()), 3, message)
        self.assertRegex(message, "the last checkpoint could not be saved; .*/run/last holds the "
                         "model before iteration [0-9]+\n$")
        self.assertFalse((disk / "run" / "pending-checkpoint").exists())  # gave its room back
        self.sample(disk / "run")


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[2:]])
