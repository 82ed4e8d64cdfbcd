#!/usr/bin/env python3
"""Compares our training and sampling with PyTorch's on the same cores, in turn.

compare.py [FAMILY...] [--only=TEXT] [--rounds=N] [--threads=N] [--processor_time] [--data=FILE]

A round is a few calls of ours and then as many of PyTorch's, so that both meet the same noise; the
figure is the median of the rounds' ratios. PyTorch's model has scaled_dot_product_attention and, for
bfloat16, autocast. The families, the first two by default:

step     a training step of either model: forward, loss, backward, clipping at 1, AdamW
sample   a character, one stream, PyTorch as nanoGPT does; JAX too where it is installed, by one
         compiled loop with kept keys and values
gemm     every matrix product of both models
memory   the most that a process of two steps of the baby GPT takes
recipe   the whole CPU recipe on the text --data, 2,000 iterations with evaluations, train against a
         twin, in slices of seconds: time and validation loss; recipe/OUR_DTYPE/THEIR_DTYPE
losses   how far our losses in bfloat16 lie from float32's: the CPU recipe's of 200 iterations, the
         baby GPT's of 50, which take some eight minutes

PyTorch must be installed (for --help it need not be); the variable PYTHON of `./run bench --compare`
names the interpreter that has it.
"""

import argparse
import importlib.util
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from ours import Bench, BenchText, Training

try:
    import torch

    import torch_twin
    from torch_twin import RECIPES, TorchGemm, TorchStep, TorchText, TorchTraining
except ModuleNotFoundError as error:
    if error.name != "torch":
        raise
    torch = None  # --help goes without it

DTYPES = ("float32", "bfloat16")


class Comparison:
    """What the command line says, and the families."""

    def __init__(self, args):
        self.args, self.clock = args, int(args.processor_time)
        self.threads = torch.get_num_threads()
        self.found = False  # a case whose name holds --only

    def wants(self, name):
        self.found |= self.args.only in name
        return self.args.only in name

    def in_turn(self, name, count, rounds, ours, others):
        """others: {name: side}, the sides with run()."""
        sides = {"ours": ours, **others}
        for side in sides.values():
            side.run(min(count, 3))  # warm-up
        seconds = {side: [] for side in sides}
        for _ in range(self.args.rounds or rounds):
            for side_name, side in sides.items():
                time.sleep(0.05)  # OpenMP's threads wait actively for a while after their work
                seconds[side_name].append(
                    statistics.median(call[self.clock] for call in side.run(count)))
        ours.close()
        line = f"{name:36} ours {statistics.median(seconds['ours']) * 1e3:9.3f} ms"
        for other in others:
            ratios = [theirs / mine for mine, theirs in zip(seconds["ours"], seconds[other])]
            line += (f"   {other} {statistics.median(seconds[other]) * 1e3:9.3f} ms   "
                     f"{other}/ours {statistics.median(ratios):5.2f} "
                     f"({min(ratios):.2f} .. {max(ratios):.2f})")
        print(line, flush=True)

    def step(self):
        for recipe, (count, rounds) in {"cpu": (20, 15), "baby": (1, 3)}.items():
            for dtype in DTYPES:
                for dropout in (0.0, 0.2):
                    name = f"step/{recipe}/{dtype}/{dropout}"
                    if self.wants(name):
                        what = recipe, dtype, dropout
                        ours = Bench(self.args.bench, "--serve", *what, self.threads)
                        self.in_turn(name, count, rounds, ours, {"PyTorch": TorchStep(*what)})

    def sample(self):
        has_jax = importlib.util.find_spec("jax") is not None
        for recipe, rounds in {"cpu": 15, "baby": 3}.items():
            block = RECIPES[recipe][3]
            for dtype in DTYPES:
                for place, start, count in (("within", 1, block - 1), ("past", block, 20)):
                    name = f"sample/{recipe}/{dtype}/{place}"
                    if not self.wants(name):
                        continue
                    what = recipe, dtype, start
                    others = {"PyTorch": TorchText(*what)}
                    if has_jax and place == "within":
                        from jax_twin import JaxText
                        others["JAX"] = JaxText(recipe, dtype)
                    ours = BenchText(self.args.bench, "--serve_text", *what, self.threads)
                    self.in_turn(name, count, rounds, ours, others)

    def gemm(self):
        for recipe, (_, _, width, block, batch) in RECIPES.items():
            layers = {"c_attn": (width, 3 * width), "c_proj": (width, width),
                      "c_fc": (width, 4 * width), "mlp_c_proj": (4 * width, width),
                      "lm_head": (width, torch_twin.VOCABULARY)}
            for dtype in DTYPES:
                for layer, (inputs, outputs) in layers.items():
                    for gradient in ("forward", "input_gradient", "weight_gradient"):
                        name = f"gemm/{recipe}/{dtype}/{layer}/{gradient}"
                        if self.wants(name):
                            ours = Bench(self.args.bench, "--serve_gemm", recipe, dtype,
                                         f"{layer}/{gradient}", self.threads)
                            theirs = TorchGemm(batch * block, inputs, outputs, dtype, gradient)
                            flops = 2.0 * batch * block * inputs * outputs
                            count = max(3, int(0.03 * 2e11 / flops))  # some 30 ms
                            self.in_turn(name, count, 7, ours, {"PyTorch": theirs})

    def memory(self):
        for dtype in DTYPES:
            for dropout in (0.0, 0.2):
                name = f"memory/baby/{dtype}/{dropout}"
                if not self.wants(name):
                    continue
                bench = Bench(self.args.bench, "--serve", "baby", dtype, dropout, self.threads)
                bench.run(2)
                ours = bench.close()
                code = ("import resource; from torch_twin import TorchStep; "
                        f"TorchStep('baby', '{dtype}', {dropout}).run(2); "
                        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)")
                theirs = 1024 * int(subprocess.run([sys.executable, "-c", code], check=True,
                                                   cwd=Path(__file__).parent, text=True,
                                                   capture_output=True).stdout)
                print(f"{name:36} ours {ours / 1e9:5.2f} GB   PyTorch {theirs / 1e9:5.2f} GB   "
                      f"ours/PyTorch {ours / theirs:.2f}", flush=True)

    def train(self, folder, *flags):
        return Training(self.args.train, folder, f"--data={self.args.data}",
                        f"--threads={self.threads}", *flags)

    def recipe(self):
        text = Path(self.args.data).read_text()
        for dtype in DTYPES:
            for their_dtype in DTYPES:
                name = f"recipe/{dtype}/{their_dtype}"
                if not self.wants(name):
                    continue
                torch.manual_seed(1337)
                theirs, seconds = TorchTraining(text, their_dtype), 0.0
                iterations = theirs.iterations()
                with tempfile.TemporaryDirectory() as folder:
                    ours = self.train(f"{folder}/run", "--preset=cpu", f"--dtype={dtype}")
                    try:
                        going = True
                        while going:
                            ours_goes = ours.run_for(2)
                            start = time.perf_counter()
                            done = sum(1 for _, _ in zip(range(50), iterations))
                            seconds += time.perf_counter() - start
                            going = ours_goes or done == 50
                    finally:
                        ours.stop()
                    loss = ours.metrics("eval", "val_loss")[-1]
                print(f"{name:36} ours {ours.seconds:6.1f} s, validation loss {loss:.4f}   "
                      f"PyTorch {seconds:6.1f} s, {theirs.validation_loss:.4f}   "
                      f"ours/PyTorch {ours.seconds / seconds:.3f}", flush=True)

    def losses(self):
        for recipe, iterations in {"cpu": 200, "baby": 50}.items():
            name = f"losses/{recipe}"
            if not self.wants(name):
                continue
            curves = []
            for dtype in DTYPES:
                with tempfile.TemporaryDirectory() as folder:
                    run = self.train(f"{folder}/run", f"--preset={recipe}", f"--dtype={dtype}",
                                     f"--max_iters={iterations}", "--log_interval=1",
                                     f"--eval_interval={iterations}", "--eval_iters=1")
                    try:
                        run.run_for()
                    finally:
                        run.stop()
                    curves.append(run.metrics("iter", "loss"))
            apart = [abs(a - b) for a, b in zip(*curves)]
            print(f"{name:36} {len(apart)} losses, {curves[0][0]:.4f} .. {curves[0][-1]:.4f}; "
                  f"bfloat16's lie {max(apart):.1e} from float32's at most, "
                  f"{statistics.mean(apart):.1e} on average", flush=True)


def main():
    root = Path(__file__).resolve().parents[2]
    families = ("step", "sample", "gemm", "memory", "recipe", "losses")
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("families", nargs="*", metavar="FAMILY", help=", ".join(families))
    parser.add_argument("--bench", default=str(root / "build/release/bench"), metavar="PROGRAM")
    parser.add_argument("--train", default=str(root / "build/release/train"), metavar="PROGRAM")
    parser.add_argument("--data", default=str(root / "data/the_salt_road.txt"), metavar="FILE",
                        help="the text of recipe and losses")
    parser.add_argument("--rounds", type=int, default=0,
                        help="default: 15 (cpu), 3 (baby), 7 (gemm)")
    parser.add_argument("--only", default="", metavar="TEXT",
                        help="only cases whose name holds it, as in 'cpu/float32'")
    parser.add_argument("--threads", type=int, default=0, help="default: all processors")
    parser.add_argument("--processor_time", action="store_true",
                        help="compare processor time: for one thread on a busy machine")
    args = parser.parse_args()
    unknown = set(args.families) - set(families)
    if unknown:
        parser.error(f"no family is called {', '.join(sorted(unknown))}")
    if torch is None:
        sys.exit(f"compare: {sys.executable} has no torch; run this with an interpreter that has")
    if args.threads:
        torch.set_num_threads(args.threads)
    torch.manual_seed(1337)
    load = " ".join(f"{x:.1f}" for x in os.getloadavg())
    print(f"PyTorch {torch.__version__}, {torch.get_num_threads()} threads, "
          f"{'processor' if args.processor_time else 'wall'} time; load {load}")
    comparison = Comparison(args)
    for family in args.families or ("step", "sample"):
        getattr(comparison, family)()
    if args.only and not comparison.found:
        sys.exit(f"compare: no case's name holds '{args.only}'")


if __name__ == "__main__":
    main()
