#!/usr/bin/env python3
"""Texts drawn with sample.

Usage: sample_test.py FOLDER_OF_PROGRAMS Class.method
"""
import pathlib
import signal
import subprocess
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from programs_test import BIN, Programs  # noqa: E402


class Prompt(Programs):
    def test_unseen_character_is_named(self):
        run = self.train(self.text("abc" * 400))
        message = self.fails("sample", f"--out_dir={run}", "--prompt=a?b")
        self.assertIn("'?'", message)
        self.assertIn("U+003F", message)
        self.assertRegex(message, r"position 1\b")
        self.assertTrue(message.startswith("sample: --prompt: '?'"), message)
        prompt = self.text("a?b", "prompt")
        message = self.fails("sample", f"--out_dir={run}", f"--prompt=FILE:{prompt}")
        self.assertTrue(message.startswith(f"sample: {prompt}: '?'"), message)
        message = self.fails("sample", f"--out_dir={run}", "--prompt=FILE:", status=(2,))
        self.assertEqual(message, "sample: --prompt=FILE: names no file: --prompt=FILE:PATH")

    def test_empty_prompt_starts_from_a_known_symbol(self):
        run = self.train(self.text("abc\n" * 400))
        self.assertEqual(len(self.sample(run, "--prompt=")), 21)

    def test_long_prompt_is_echoed_whole(self):
        run = self.train(self.text("abcdefghij" * 200))
        for length in (8, 9, 20):
            prompt = ("abcdefghij" * 3)[:length]
            text = self.sample(run, f"--prompt={prompt}", "--temperature=0")
            self.assertTrue(text.startswith(prompt))
            self.assertEqual(len(text), length + 20 + 1)
            # Only the last block conditions the model.
            cropped = self.sample(run, f"--prompt={prompt[-8:]}", "--temperature=0")
            self.assertEqual(text[length:], cropped[8:])

    def test_prompt_from_a_file(self):
        run = self.train(self.text("abc\n" * 400))
        prompt = self.text("cab", "prompt")
        self.assertTrue(self.sample(run, f"--prompt=FILE:{prompt}").startswith("cab"))

    def test_vocabulary_lives_in_the_run(self):
        text = self.text("abcde" * 300)
        run = self.train(text)
        text.unlink()
        self.assertTrue(set(self.sample(run)) <= set("abcde\n"))


class Sampling(Programs):
    def setUp(self):
        super().setUp()
        self.run_folder = self.train(self.text("the quick brown fox " * 100))

    def test_temperature_zero_is_greedy(self):
        greedy = self.sample(self.run_folder, "--temperature=0", "--seed=1")
        self.assertEqual(greedy, self.sample(self.run_folder, "--temperature=0", "--seed=2"))
        self.assertEqual(greedy, self.sample(self.run_folder, "--top_k=1"))
        self.assertEqual(greedy, self.sample(self.run_folder, "--temperature=1e-30"))
        self.assertEqual(greedy, self.sample(self.run_folder, "--top_p=0"))

    def test_every_option_has_an_effect(self):
        base = self.sample(self.run_folder)
        for option in ("--seed=2", "--temperature=0.02", "--top_k=2", "--top_p=0.3"):
            self.assertNotEqual(base, self.sample(self.run_folder, option), option)
        self.assertEqual(base, self.sample(self.run_folder))

    def test_top_k_above_the_vocabulary_and_zero_are_no_filter(self):
        unfiltered = self.sample(self.run_folder, "--top_k=0")
        self.assertEqual(unfiltered, self.sample(self.run_folder, "--top_k=100000"))

    def test_flags_of_nanogpt_are_known(self):
        self.sample(self.run_folder, "--device=cpu", "--compile=False")
        self.assertIn("did you mean --prompt?",
                      self.fails("sample", f"--out_dir={self.run_folder}", "--start=a"))
        self.assertIn("--compile=true is not offered",
                      self.fails("sample", f"--out_dir={self.run_folder}", "--compile=True"))

    def test_values_out_of_range(self):
        for flag in ("--temperature=-0.5", "--temperature=nan", "--temperature=inf",
                     "--top_p=1.5", "--top_k=-1", "--max_new_tokens=-1", "--num_samples=-1"):
            message = self.fails("sample", f"--out_dir={self.run_folder}", flag, status=(2,))
            self.assertIn(flag.split("=")[0], message)

    def test_samples_are_separated(self):
        r = self.run_program("sample", f"--out_dir={self.run_folder}", "--num_samples=3",
                             "--max_new_tokens=5")
        self.assertEqual(r.stdout.decode().count("---------------\n"), 2)

    def test_samples_do_not_depend_on_how_many_are_drawn(self):
        def texts(number, *args):
            r = self.run_program("sample", f"--out_dir={self.run_folder}", *args,
                                 f"--num_samples={number}", "--max_new_tokens=12", "--prompt=fox")
            self.assertEqual(r.returncode, 0, r.stderr.decode())
            return r.stdout.decode().split("---------------\n")
        many = texts(19)  # more than are drawn in one pass
        self.assertEqual(len(many), 19)
        self.assertEqual(many[:3], texts(3))
        self.assertGreater(len(set(many)), 15)
        self.assertEqual(texts(2, "--temperature=0"), 2 * texts(1, "--temperature=0"))

    def test_nothing_new_prints_the_prompt(self):
        r = self.run_program("sample", f"--out_dir={self.run_folder}", "--num_samples=1",
                             "--max_new_tokens=0", "--prompt=fox")
        self.assertEqual(r.stdout, b"fox\n")

    def test_closed_pipe_is_quiet(self):
        for ignored in (False, True):
            p = subprocess.Popen(
                [BIN / "sample", f"--out_dir={self.run_folder}", "--max_new_tokens=100000"],
                stdout=subprocess.PIPE, stderr=subprocess.PIPE, restore_signals=not ignored)
            p.stdout.read(5)
            p.stdout.close()
            self.assertEqual((p.wait(), p.stderr.read()), (-signal.SIGPIPE, b""))
            p.stderr.close()

    def test_nan_model_is_named(self):
        path = self.run_folder / "last/model.safetensors"
        data = bytearray(path.read_bytes())
        data[-4:] = b"\xff\xff\xff\xff"
        path.write_bytes(bytes(data))
        message = self.fails("sample", f"--out_dir={self.run_folder}", "--checkpoint=last")
        self.assertTrue(message.startswith(
            f"sample: {self.run_folder}/last: non-finite logits: the model's weights"), message)
        message = self.fails("train", f"--out_dir={self.run_folder}", "--resume", "--eval_only")
        self.assertRegex(message, "^train: .*/last/model.safetensors: .* holds a NaN or an infinity$")

    def test_missing_run(self):
        self.assertIn("nowhere", self.fails("sample", f"--out_dir={self.dir}/nowhere"))


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[2:]])
