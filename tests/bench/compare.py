#!/usr/bin/env python3
"""Compares our training step with PyTorch's on the same cores, in alternating rounds.

compare.py [--bench=PROGRAM] [--rounds=N] [--only=TEXT] [--threads=N] [--processor_time]

Both sides train the same model on one random batch: forward, loss, backward, clipping at 1, AdamW;
PyTorch with scaled_dot_product_attention and, for bfloat16, autocast. Then both draw characters,
one stream, PyTorch as nanoGPT does. A round is a few steps or characters of ours and then as many
of PyTorch's, so that both meet the same noise; the figure is the median of the rounds' ratios.
PyTorch must be installed; the variable PYTHON of `./run bench --compare` names the interpreter that
has it.
"""

import argparse
import os
import statistics
import subprocess
import time
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional as F

# name: layers, heads, width, block, batch, steps a round
RECIPES = {"cpu": (4, 4, 128, 64, 12, 20), "baby": (6, 6, 384, 256, 64, 1)}
VOCABULARY = 65


class Attention(nn.Module):
    def __init__(self, width, heads, dropout):
        super().__init__()
        self.heads, self.dropout = heads, dropout
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.out = nn.Linear(width, width, bias=False)
        self.drop = nn.Dropout(dropout)

    def forward(self, x):
        shape = x.shape
        q, k, v = (part.unflatten(-1, (self.heads, -1)).transpose(1, 2)
                   for part in self.qkv(x).chunk(3, dim=-1))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True,
                                           dropout_p=self.dropout if self.training else 0.0)
        return self.drop(self.out(y.transpose(1, 2).reshape(shape)))


class Block(nn.Module):
    def __init__(self, width, heads, dropout):
        super().__init__()
        self.norm1, self.norm2 = (nn.LayerNorm(width, bias=False) for _ in range(2))
        self.attention = Attention(width, heads, dropout)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width, bias=False), nn.GELU(),
                                 nn.Linear(4 * width, width, bias=False), nn.Dropout(dropout))

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class Model(nn.Module):
    def __init__(self, layers, heads, width, block, dropout):
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, width)
        self.positions = nn.Parameter(0.02 * torch.randn(block, width))
        nn.init.normal_(self.tokens.weight, std=0.02)  # the head too: they are tied
        self.drop = nn.Dropout(dropout)
        self.blocks = nn.Sequential(*(Block(width, heads, dropout) for _ in range(layers)))
        self.norm = nn.LayerNorm(width, bias=False)

    def hidden(self, ids):
        return self.norm(self.blocks(self.drop(self.tokens(ids) + self.positions[:ids.shape[1]])))

    def forward(self, ids, targets):
        logits = F.linear(self.hidden(ids), self.tokens.weight)
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten())

    @torch.no_grad()
    def generate(self, ids, count):
        """As nanoGPT does: the whole context again for each character."""
        for _ in range(count):
            context = ids[:, -self.positions.shape[0]:]
            logits = F.linear(self.hidden(context)[:, -1], self.tokens.weight)
            next_id = torch.multinomial(F.softmax(logits.float(), dim=-1), num_samples=1)
            ids = torch.cat((ids, next_id), dim=1)
        return ids


class Torch:
    """PyTorch's side. run() gives seconds and processor seconds of each step."""

    def __init__(self, recipe, dtype, dropout):
        layers, heads, width, block, batch, _ = RECIPES[recipe]
        self.autocast = dtype == "bfloat16"
        self.model = Model(layers, heads, width, block, dropout)
        matrices = [p for p in self.model.parameters() if p.dim() >= 2]
        vectors = [p for p in self.model.parameters() if p.dim() < 2]
        self.optimizer = torch.optim.AdamW([{"params": matrices, "weight_decay": 0.1},
                                            {"params": vectors, "weight_decay": 0.0}],
                                           lr=1e-3, betas=(0.9, 0.99))
        self.ids, self.targets = torch.randint(VOCABULARY, (2, batch, block))

    def run(self, steps):
        seconds = []
        for _ in range(steps):
            start, processor = time.perf_counter(), time.process_time()
            with torch.autocast("cpu", dtype=torch.bfloat16, enabled=self.autocast):
                loss = self.model(self.ids, self.targets)
            loss.item()
            loss.backward()
            nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
            self.optimizer.step()
            self.optimizer.zero_grad(set_to_none=True)
            seconds.append((time.perf_counter() - start, time.process_time() - processor))
        return seconds


class TorchText:
    """PyTorch's sampling. run() gives the seconds and processor seconds of one character."""

    def __init__(self, recipe, dtype, start):
        layers, heads, width, block, _, _ = RECIPES[recipe]
        self.autocast = dtype == "bfloat16"
        self.model = Model(layers, heads, width, block, 0.0).eval()
        self.ids = torch.randint(VOCABULARY, (1, start))

    def run(self, count):
        start, processor = time.perf_counter(), time.process_time()
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=self.autocast):
            self.model.generate(self.ids, count)
        return [((time.perf_counter() - start) / count, (time.process_time() - processor) / count)]


class Bench:
    """The bench program's side, which answers each number with words."""

    def __init__(self, program, flag, *what):
        what = ",".join(map(str, what)) + f",{torch.get_num_threads()}"
        self.process = subprocess.Popen([program, f"--{flag}={what}"], text=True,
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def ask(self, number):
        print(number, file=self.process.stdin, flush=True)
        words = [float(word) for word in self.process.stdout.readline().split()]
        if not words:
            raise SystemExit(f"compare: the bench program ended, status {self.process.wait()}")
        return list(zip(words[::2], words[1::2]))

    def close(self):
        self.process.stdin.close()
        self.process.wait()


class Ours(Bench):
    """The same of `bench --serve`."""

    def __init__(self, program, recipe, dtype, dropout):
        super().__init__(program, "serve", recipe, dtype, dropout)

    def run(self, steps):
        return self.ask(steps)


class OursText(Bench):
    """The same of `bench --serve_text`."""

    def __init__(self, program, recipe, dtype, start):
        super().__init__(program, "serve_text", recipe, dtype, start)

    def run(self, count):
        return [tuple(seconds / count for seconds in self.ask(count)[0])]


def compare(name, ours, theirs, steps, rounds, clock):
    for side in (ours, theirs):
        side.run(min(steps, 3))  # warm-up
    ratios, our_times, their_times = [], [], []
    for _ in range(rounds):
        mine = statistics.median(step[clock] for step in ours.run(steps))
        other = statistics.median(step[clock] for step in theirs.run(steps))
        ratios.append(other / mine)
        our_times.append(mine)
        their_times.append(other)
    ours.close()
    print(f"{name:34} ours {statistics.median(our_times) * 1e3:9.2f} ms   "
          f"PyTorch {statistics.median(their_times) * 1e3:9.2f} ms   "
          f"PyTorch/ours {statistics.median(ratios):5.2f} "
          f"({min(ratios):.2f} .. {max(ratios):.2f})", flush=True)


def main():
    root = Path(__file__).resolve().parents[2]
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bench", default=str(root / "build/release/bench"), metavar="PROGRAM")
    parser.add_argument("--rounds", type=int, default=0, help="default: 15 (cpu), 3 (baby)")
    parser.add_argument("--only", default="", metavar="TEXT",
                        help="only cases whose name holds it, as in 'cpu/float32' or 'sample/baby'")
    parser.add_argument("--threads", type=int, default=0, help="default: all processors")
    parser.add_argument("--processor_time", action="store_true",
                        help="compare processor time: for one thread on a busy machine")
    args = parser.parse_args()
    if args.threads:
        torch.set_num_threads(args.threads)
    torch.manual_seed(1337)
    load = " ".join(f"{x:.1f}" for x in os.getloadavg())
    print(f"PyTorch {torch.__version__}, {torch.get_num_threads()} threads, "
          f"{'processor' if args.processor_time else 'wall'} time; load {load}")
    clock = int(args.processor_time)
    for recipe, (_, _, _, block, _, steps) in RECIPES.items():
        rounds = args.rounds or (15 if recipe == "cpu" else 3)
        for dtype in ("float32", "bfloat16"):
            for dropout in (0.0, 0.2):
                if args.only in f"{recipe}/{dtype}/{dropout}":
                    what = recipe, dtype, dropout
                    compare(f"{recipe}, {dtype}" + (f", dropout {dropout}" if dropout else ""),
                            Ours(args.bench, *what), Torch(*what), steps, rounds, clock)
            for place, start, count in (("within", 1, block - 1), ("past", block, 20)):
                if args.only in f"sample/{recipe}/{dtype}/{place}":
                    what = recipe, dtype, start
                    compare(f"{recipe}, {dtype}, character {place} block",
                            OursText(args.bench, *what), TorchText(*what), count, rounds, clock)


if __name__ == "__main__":
    main()
