#!/usr/bin/env python3
"""train, sample and gradcheck as a user runs them. Each method is a test of its own in ctest.

Usage: programs_test.py FOLDER_OF_PROGRAMS Class.method
"""
import hashlib
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

BIN = pathlib.Path(sys.argv[1]).resolve() if len(sys.argv) > 1 else pathlib.Path()
TINY = ["--n_layer=1", "--n_head=2", "--n_embd=16", "--block_size=8", "--batch_size=4",
        "--max_iters=3", "--eval_iters=1", "--eval_interval=1000", "--warmup_iters=0"]
# A sanitizer takes terabytes of address space; AddressSanitizer keeps freed memory for a while,
# unless it is told not to.
SANITIZED = bool(os.environ.get("CHARGRAD_SANITIZE"))
KEEP_NOTHING = {**os.environ, "ASAN_OPTIONS": "quarantine_size_mb=0:thread_local_quarantine_size_kb=0"}


class Programs(unittest.TestCase):
    def setUp(self):
        # In memory where that can be: checkpoints wait for the disk.
        memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
        self.dir = pathlib.Path(tempfile.mkdtemp(prefix="chargrad.", dir=memory))
        self.addCleanup(shutil.rmtree, self.dir, True)

    def text(self, content, name="text"):
        data = content.encode() if isinstance(content, str) else content
        (self.dir / name).write_bytes(data)
        return self.dir / name

    def run_program(self, name, *args, **kw):
        command = [str(BIN / name), *map(str, args)]
        return subprocess.run(command, capture_output=True, **kw)

    def train(self, text, *args, out="run", flags=TINY):
        r = self.run_program("train", f"--data={text}", f"--out_dir={self.dir / out}", *flags, *args)
        self.assertEqual(r.returncode, 0, r.stderr.decode())
        return self.dir / out

    def sample(self, run, *args):
        r = self.run_program("sample", f"--out_dir={run}", "--num_samples=1", "--max_new_tokens=20",
                             *args)
        self.assertEqual(r.returncode, 0, r.stderr.decode())
        self.assertEqual(r.stderr, b"")
        return r.stdout.decode()

    def fails(self, program, *args, status=(1, 2)):
        """The one error message: one to three lines, no abort, the status of an error."""
        r = self.run_program(program, *args)
        message = r.stderr.decode(errors="replace").strip()
        self.assertIn(r.returncode, status, message)
        self.assertLessEqual(len(message.splitlines()), 3, message)
        self.assertTrue(message.startswith(program + ": "), message)
        for word in ("terminate", "what():", "Segmentation"):
            self.assertNotIn(word, message)
        return message

    def train_fails(self, text, *args):
        out = self.dir / "refused"
        message = self.fails("train", f"--data={text}", f"--out_dir={out}", *TINY, *args)
        self.assertFalse((out / "last").exists())
        return message

    def vocabulary(self, run):
        return json.loads((run / "last/vocab.json").read_text())["symbols"]

    def metrics(self, run, kind):
        lines = map(json.loads, (run / "metrics.jsonl").read_text().splitlines())
        return [line for line in lines if line["kind"] == kind]


class Data(Programs):
    def test_shorter_than_a_window(self):
        message = self.train_fails(self.text("abc"))
        self.assertIn("9", message)

    def test_validation_split_too_short(self):
        message = self.train_fails(self.text("abcdefgh" * 10))
        self.assertIn("validation", message)
        self.assertIn("8", message)

    def test_exact_fit(self):
        run = self.train(self.text("".join(chr(33 + i) for i in range(90))),
                         "--eval_interval=1")
        for line in self.metrics(run, "eval"):
            self.assertGreater(line["val_loss"], 0)

    def test_empty(self):
        self.assertIn("empty", self.train_fails(self.text("")))

    def test_missing_path_and_folder(self):
        message = self.train_fails(self.dir / "nope.txt")
        self.assertIn("nope.txt", message)
        self.assertIn("No such file or directory", message)
        self.assertIn(str(self.dir), self.train_fails(self.dir))

    def test_invalid_utf8_names_the_offset(self):
        message = self.train_fails(self.text(b"\x41\x92\x42" * 500))
        self.assertRegex(message, r"offset 1\b")

    def test_multi_byte_characters_are_one_symbol(self):
        run = self.train(self.text("héé—日本\n" * 500))
        self.assertEqual(self.vocabulary(run), sorted("hé—日本\n"))
        self.assertTrue(set(self.sample(run)) <= set("hé—日本\n"))
        self.assertTrue(self.sample(run, "--prompt=日").startswith("日"))

    def test_byte_order_mark_is_no_symbol(self):
        run = self.train(self.text(b"\xef\xbb\xbf" + b"hello\n" * 200))
        self.assertEqual(self.vocabulary(run), sorted("helo\n"))

    def test_carriage_returns_are_kept(self):
        for name, text in (("crlf", b"ab\r\ncd\r\n" * 200), ("cr", b"ab\rcd\r" * 200)):
            run = self.train(self.text(text, name), out=name + "_run")
            self.assertEqual(self.vocabulary(run), sorted(set(text.decode())))


class Flags(Programs):
    def setUp(self):
        super().setUp()
        self.file = self.text("hello world, " * 200)

    def test_plain_meanings(self):
        for i, flag in enumerate((["--learning_rate", "1"], ["--bias", "false"], ["--bias=0"],
                                  ["--eval-iters", "2"], ["--device=cpu", "--compile=False"])):
            self.train(self.file, *flag, out=f"run{i}")

    def test_refusals_name_the_flag(self):
        for flag in ("--batch_size=2.5", "--batch_size=-1", "--batch_size=0",
                     "--max_iters=99999999999999999999", "--learning_rate=1e-3abc", "--bias=maybe",
                     "--dropout=1.5", "--dropout=nan", "--threads=-1", "--beta1=1", "--dtype=int8",
                     "--grad_clip=-1", "--eval_interval=0"):
            self.assertIn(flag.split("=")[0], self.train_fails(self.file, flag))

    def test_unknown_flag_suggests_the_nearest(self):
        self.assertIn("did you mean --n_layer?", self.train_fails(self.file, "--n_layers=3"))

    def test_help_and_version(self):
        for program in ("train", "sample", "gradcheck"):
            r = self.run_program(program, "--help")
            self.assertEqual((r.returncode, r.stderr), (0, b""))
            self.assertIn(b"--help", r.stdout)
            self.assertRegex(self.run_program(program, "--version").stdout.decode(), r"\d+\.\d+")

    def test_config_lies_below_the_command_line(self):
        config = self.text('{"max_iters": 1, "seed": 5} // mine', "my.json")
        flags = [f for f in TINY if not f.startswith("--max_iters")]
        run = self.train(self.file, f"--config={config}", "--seed=6", flags=flags)
        settings = json.loads((run / "settings.json").read_text())["settings"]
        self.assertEqual((settings["max_iters"], settings["seed"]), (1, 6))


class Loop(Programs):
    def setUp(self):
        super().setUp()
        self.file = self.text("the quick brown fox jumps over the lazy dog. " * 60)

    def test_a_checkpoint_exists_at_the_end(self):
        run = self.train(self.file)
        self.assertTrue((run / "last/model.safetensors").exists())

    def test_first_learning_rate_is_not_zero(self):
        run = self.train(self.file, "--warmup_iters=10", "--max_iters=12", "--learning_rate=1",
                         "--log_interval=1", "--lr_decay_iters=100", "--min_lr=0.1")
        rates = [line["lr"] for line in self.metrics(run, "iter")]
        self.assertAlmostEqual(rates[0], 1 / 11)
        self.assertEqual(rates.count(1.0), 1)

    def test_losses_are_written_with_nine_digits(self):
        run = self.train(self.file, "--eval_interval=1", "--log_interval=1")
        for line in self.metrics(run, "iter"):
            self.assertEqual(set(line), {"kind", "iter", "loss", "lr", "grad_norm", "ms",
                                         "tokens_per_s"})
        self.assertEqual([l["iter"] for l in self.metrics(run, "eval")], [0, 1, 2, 3])
        raw = (run / "metrics.jsonl").read_text()
        self.assertRegex(raw, r'"loss":\d\.\d{6,8}\b')

    def test_output_lines(self):
        r = self.run_program("train", f"--data={self.file}", f"--out_dir={self.dir}/run", *TINY,
                             "--log_interval=1")
        out = r.stdout.decode()
        self.assertRegex(out, r"(?m)^step 0: train loss \d\.\d{4}, val loss \d\.\d{4}$")
        self.assertRegex(out, r"(?m)^iter 3: loss \d\.\d{4}, time \d+\.\d{2}ms, \d+ tok/s$")
        self.assertEqual(r.stderr, b"")

    def test_used_folder_is_refused_until_overwritten(self):
        run = self.train(self.file)
        before = (run / "last/model.safetensors").read_bytes()
        message = self.fails("train", f"--data={self.file}", f"--out_dir={run}", *TINY)
        self.assertIn("--resume", message)
        self.assertIn("--overwrite", message)
        self.assertEqual((run / "last/model.safetensors").read_bytes(), before)
        self.train(self.file, "--overwrite", "--seed=2")
        self.assertNotEqual((run / "last/model.safetensors").read_bytes(), before)

    def test_overwrite_keeps_the_old_run_when_the_text_is_bad(self):
        run = self.train(self.file)
        self.fails("train", f"--data={self.dir}/nope", f"--out_dir={run}", *TINY, "--overwrite")
        self.assertTrue((run / "last/model.safetensors").exists())

    def test_every_model_and_dtype_trains_and_samples(self):
        for i, flags in enumerate((["--model=bigram"], ["--model=head", "--head_size=4"],
                                   ["--model=head", "--attention_scale=none"],
                                   ["--dtype=float64"], ["--dtype=bfloat16", "--dropout=0.1"],
                                   ["--bias=true", "--gradient_accumulation_steps=2"])):
            run = self.train(self.file, *flags, out=f"run{i}")
            self.sample(run)

    def test_profile_prints_tables_and_writes_a_trace(self):
        r = self.run_program("train", f"--data={self.file}", f"--out_dir={self.dir}/run", *TINY,
                             "--max_iters=8", "--profile=4")
        self.assertEqual(r.returncode, 0, r.stderr.decode())
        text = r.stdout.decode()
        for word in ("profile of 4 steps", "attention", "optimizer", "linear backward",
                     f"trace: {self.dir}/run/trace.json"):
            self.assertIn(word, text)
        trace = json.loads((self.dir / "run/trace.json").read_text())["traceEvents"]
        self.assertEqual(sum(event["name"] == "step" for event in trace), 4)
        # The same losses as without it, and no trace.
        plain = self.train(self.file, "--max_iters=8", "--profile=0", out="plain")
        self.assertEqual([line["loss"] for line in self.metrics(self.dir / "run", "iter")],
                         [line["loss"] for line in self.metrics(plain, "iter")])
        self.assertFalse((plain / "trace.json").exists())
        # Too few steps for it all: what there is.
        r = self.run_program("train", f"--data={self.file}", f"--out_dir={self.dir}/run", *TINY,
                             "--overwrite", "--max_iters=4", "--profile=100")
        self.assertIn(b"profile of 2 steps", r.stdout)
        # None at all, and a trace that cannot be written.
        run = self.dir / "run"
        r = self.run_program("train", f"--data={self.file}", f"--out_dir={run}", *TINY,
                             "--overwrite", "--max_iters=2", "--profile=1")
        self.assertEqual(r.returncode, 0)
        self.assertIn(b"--profile measured nothing", r.stderr)
        (run / "trace.json").mkdir()
        r = self.run_program("train", f"--out_dir={run}", "--resume", "--max_iters=9",
                             "--profile=1")
        self.assertEqual(r.returncode, 0)
        self.assertIn(b"profile of 1 steps", r.stdout)
        self.assertNotIn(b"trace: ", r.stdout)
        self.assertIn(b"trace.json is in the way", r.stderr)
        self.assertFalse((run / "trace.json.tmp").exists())
        self.fails("train", f"--data={self.file}", "--profile=-1", status=(2,))

    def test_eval_only_writes_nothing(self):
        r = self.run_program("train", f"--data={self.file}", f"--out_dir={self.dir}/run", *TINY,
                             "--eval_only")
        self.assertEqual(r.returncode, 0)
        self.assertIn(b"step 0: train loss", r.stdout)
        self.assertIn(b"a new model, which nothing has trained", r.stdout)
        self.assertFalse((self.dir / "run").exists())

    def test_resume_refuses_another_architecture_and_another_text(self):
        run = self.train(self.file)
        message = self.fails("train", f"--out_dir={run}", "--resume", "--n_embd=32")
        self.assertIn("--n_embd", message)
        self.file.write_text(self.file.read_text() + "x")
        self.assertIn("SHA-256", self.fails("train", f"--out_dir={run}", "--resume"))

    def test_resume_goes_on(self):
        run = self.train(self.file, "--log_interval=1")
        r = self.run_program("train", f"--out_dir={run}", "--resume", "--max_iters=6")
        self.assertEqual(r.returncode, 0, r.stderr)
        self.assertEqual([l["iter"] for l in self.metrics(run, "iter")], list(range(7)))

    def test_a_longer_run_is_told_that_its_decay_has_ended(self):
        run = self.train(self.file)
        goes_on = lambda *flags: self.run_program("train", f"--out_dir={run}", "--resume",
                                                  *flags).stdout.decode()
        self.assertIn("the learning rate stays at min_lr=0.0001 from iteration 3 on; "
                      "--lr_decay_iters=6 would stretch its decay", goes_on("--max_iters=6"))
        self.assertNotIn("stays at", goes_on("--max_iters=8", "--lr_decay_iters=8"))

    def test_no_time_for_an_iteration(self):
        r = self.run_program("train", f"--data={self.file}", f"--out_dir={self.dir}/a b", *TINY,
                             "--max_seconds=1e-9")
        self.assertEqual(r.returncode, 0, r.stderr)
        self.assertIn("time is up before the first iteration", r.stdout.decode())
        self.assertTrue(r.stdout.decode().endswith(f"; sample --out_dir='{self.dir}/a b'\n"))

    def start(self, *args, **kw):
        """A training without an end, once it has done three iterations."""
        flags = [f for f in TINY if not f.startswith("--max_iters")]
        run = self.dir / "run"
        p = subprocess.Popen([BIN / "train", f"--data={self.file}", f"--out_dir={run}", *flags,
                              "--max_iters=100000000", "--log_interval=1", *args],
                             stderr=subprocess.PIPE, **{"stdout": subprocess.DEVNULL, **kw})
        self.addCleanup(p.stderr.close)
        self.addCleanup(p.kill)
        self.wait_for(run, 3)
        return p, run

    def wait_for(self, run, iterations):
        while not (run / "metrics.jsonl").exists() or (
                (run / "metrics.jsonl").read_text().count("\n") < iterations):
            time.sleep(0.05)

    def test_signals_save_and_exit(self):
        for number, status in ((signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 143)):
            p, run = self.start()
            p.send_signal(number)
            self.assertEqual(p.wait(), status)
            last = self.metrics(run, "iter")[-1]["iter"]
            self.assertEqual(os.readlink(run / "last"), f"ckpt-{last + 1:06}")
            shutil.rmtree(run)

    def test_a_terminal_that_closes_is_one_signal(self):
        p, run = self.start("--gradient_accumulation_steps=3000")
        for _ in range(2):  # one of the shell, one of the system
            p.send_signal(signal.SIGHUP)
            time.sleep(0.02)
        self.assertEqual(p.wait(), 143)
        last = self.metrics(run, "iter")[-1]["iter"]
        self.assertEqual(os.readlink(run / "last"), f"ckpt-{last + 1:06}")

    def test_an_alarm_that_others_set_ends_the_run(self):
        p, _ = self.start()
        p.send_signal(signal.SIGALRM)
        self.assertEqual(p.wait(), -signal.SIGALRM)

    def test_a_signal_that_must_wait_is_answered(self):
        flags = [f for f in TINY if not f.startswith("--max_iters")]
        p = subprocess.Popen([BIN / "train", f"--data={self.file}", f"--out_dir={self.dir}/run",
                              *flags, "--max_iters=1", "--gradient_accumulation_steps=1000000"],
                             stderr=subprocess.PIPE, stdout=subprocess.DEVNULL)
        self.addCleanup(p.stderr.close)
        self.addCleanup(p.kill)
        while not (self.dir / "run/best").exists():  # the evaluation is saved
            self.assertIsNone(p.poll())
            time.sleep(0.01)
        time.sleep(0.5)  # and the step has begun, at whose end it would stop unasked
        p.send_signal(signal.SIGINT)
        self.assertEqual(p.stderr.readline(), b"train: stopping once the run is saved; another "
                                              b"signal stops at once\n")
        p.send_signal(signal.SIGINT)
        self.assertEqual(p.wait(), 130)

    def test_a_signal_that_was_ignored_stays_ignored(self):
        ignore = lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN)
        p, run = self.start(preexec_fn=ignore)
        p.send_signal(signal.SIGHUP)
        self.wait_for(run, len(self.metrics(run, "iter")) + 50)
        self.assertIsNone(p.poll())

    def test_a_reader_that_goes_away_does_not_stop_the_training(self):
        p, run = self.start(stdout=subprocess.PIPE)
        p.stdout.close()
        self.wait_for(run, len(self.metrics(run, "iter")) + 50)
        self.assertIsNone(p.poll())
        p.send_signal(signal.SIGINT)
        self.assertEqual(p.wait(), 130)
        told = p.stderr.read().decode()
        self.assertIn("the training goes on without it", told)
        self.assertRegex(told, r"stopped before iteration \d+; go on with: train --out_dir=\S+ --resume")
        self.assertEqual(told.count("\n"), 2, told)

    def test_killed_runs_go_on(self):
        straight = self.train(self.file, "--max_iters=3000", "--dropout=0.1", "--eval_interval=7",
                              "--log_interval=1", out="straight")
        run = self.dir / "run"
        flags = [f"--data={self.file}", f"--out_dir={run}", *TINY, "--max_iters=3000",
                 "--dropout=0.1", "--eval_interval=7", "--log_interval=1"]
        command = [BIN / "train", *flags]
        for _ in range(5):
            p = subprocess.Popen(command, stdout=subprocess.DEVNULL)
            while not (run / "last").exists():
                time.sleep(0.01)
            time.sleep(0.05)
            p.kill()
            p.wait()
            command = [BIN / "train", f"--out_dir={run}", "--resume"]
        self.assertEqual(subprocess.run(command, stdout=subprocess.DEVNULL).returncode, 0)
        losses = lambda folder: [(l["iter"], l["loss"]) for l in self.metrics(folder, "iter")]
        self.assertEqual(losses(run), losses(straight))
        self.assertEqual((run / "last/model.safetensors").read_bytes(),
                         (straight / "last/model.safetensors").read_bytes())

    def test_memory_stays_flat(self):
        peaks = []
        for iters in (200, 2000):
            flags = [f for f in TINY if not f.startswith("--max_iters")]
            command = [BIN / "train", f"--data={self.file}", f"--out_dir={self.dir / str(iters)}",
                       *flags, f"--max_iters={iters}", "--log_interval=100000"]
            p = subprocess.Popen(command, stdout=subprocess.DEVNULL, env=KEEP_NOTHING)
            _, status, usage = os.wait4(p.pid, 0)
            p.returncode = os.waitstatus_to_exitcode(status)
            self.assertEqual(p.returncode, 0)
            peaks.append(usage.ru_maxrss)
        self.assertLess(peaks[1] - peaks[0], 1024)

    def test_read_only_folder_is_refused_before_training(self):
        if os.geteuid() == 0:
            blocked = self.text("", "a_file") / "run"  # below a file: not even root may
        else:
            (self.dir / "locked").mkdir(mode=0o500)
            blocked = self.dir / "locked/run"
        r = self.run_program("train", f"--data={self.file}", f"--out_dir={blocked}", *TINY)
        self.assertEqual(r.returncode, 1)
        self.assertNotIn(b"iter 0", r.stdout)

    def test_missing_parents_are_made(self):
        self.train(self.file, out="a/b/c")


class Reproducible(Programs):
    def test_threads_do_not_change_a_bit(self):
        text = self.text("the quick brown fox jumps over the lazy dog. " * 60)
        flags = ["--n_layer=2", "--n_head=3", "--n_embd=39", "--block_size=37", "--batch_size=5",
                 "--max_iters=6", "--eval_interval=3", "--eval_iters=2", "--dropout=0.1",
                 "--warmup_iters=0"]
        digests = set()
        for threads in (1, 2, 3, 7):
            run = self.train(text, f"--threads={threads}", out=f"t{threads}", flags=flags)
            digests.add(hashlib.sha256((run / "last/model.safetensors").read_bytes()).hexdigest())
        self.assertEqual(len(digests), 1)


class Gradcheck(Programs):
    def test_one_op(self):
        r = self.run_program("gradcheck", "softmax")
        self.assertEqual(r.returncode, 0, r.stdout)
        self.assertIn(b"softmax/", r.stdout)

    def test_json(self):
        r = self.run_program("gradcheck", "--json", "relu")
        cases = json.loads(r.stdout)
        self.assertGreater(len(cases), 0)
        for case in cases:
            self.assertEqual(set(case), {"case", "passed", "max_rel_error", "max_abs_error"})
            self.assertTrue(case["passed"])

    def test_scaling_shows_why_attention_divides(self):
        out = self.dir / "scaling.json"
        r = self.run_program("gradcheck", "--scaling", f"--json={out}")
        self.assertEqual(r.returncode, 0, r.stderr)
        self.assertIn(b"586", r.stdout)
        rows = {(row["d_k"], row["scaled"]): row for row in json.loads(out.read_text())["rows"]}
        widths = [2 ** i for i in range(11)]
        self.assertEqual(sorted(rows), sorted((d, s) for d in widths for s in (False, True)))
        for d in widths:
            self.assertTrue(0.27 < rows[d, True]["jacobian_norm_mean"] < 0.33, d)
        unscaled = [rows[d, False]["jacobian_norm_mean"] for d in widths if d >= 8]
        self.assertEqual(unscaled, sorted(unscaled, reverse=True))
        self.assertTrue(0.03 < unscaled[-1] < 0.08)
        self.assertLess(rows[1024, False]["jacobian_norm_median"], 1e-4)
        self.assertLess(max(row["max_rel_error"] for row in rows.values()), 1e-6)

    def test_unknown_pattern(self):
        self.assertIn("nosuchop", self.fails("gradcheck", "nosuchop"))


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[2:]])
