#!/usr/bin/env python3
"""Compares our training step with PyTorch's on the same cores, in alternating rounds.

compare.py [--bench=PROGRAM] [--rounds=N] [--only=TEXT] [--threads=N] [--processor_time]

Both sides train the same model on one random batch: forward, loss, backward, clipping at 1, AdamW;
PyTorch with scaled_dot_product_attention and, for bfloat16, autocast. A round is a few steps of
ours and then as many of PyTorch's, so that both meet the same noise; the figure is the median of
the rounds' ratios. PyTorch must be installed; the variable PYTHON of `./run bench --compare` names
the interpreter that has it.
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

    def forward(self, ids, targets):
        x = self.drop(self.tokens(ids) + self.positions[:ids.shape[1]])
        logits = F.linear(self.norm(self.blocks(x)), self.tokens.weight)
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


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


class Ours:
    """The same of `bench --serve`."""

    def __init__(self, program, recipe, dtype, dropout):
        what = f"{recipe},{dtype},{dropout},{torch.get_num_threads()}"
        self.process = subprocess.Popen([program, f"--serve={what}"], text=True,
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def run(self, steps):
        print(steps, file=self.process.stdin, flush=True)
        words = [float(word) for word in self.process.stdout.readline().split()]
        if len(words) != 2 * steps:
            raise SystemExit(f"compare: the bench program ended, status {self.process.wait()}")
        return list(zip(words[::2], words[1::2]))

    def close(self):
        self.process.stdin.close()
        self.process.wait()


def compare(program, recipe, dtype, dropout, rounds, clock):
    steps = RECIPES[recipe][-1]
    ours, theirs = Ours(program, recipe, dtype, dropout), Torch(recipe, dtype, dropout)
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
    name = f"{recipe}, {dtype}" + (f", dropout {dropout}" if dropout else "")
    print(f"{name:30} ours {statistics.median(our_times) * 1e3:9.1f} ms   "
          f"PyTorch {statistics.median(their_times) * 1e3:9.1f} ms   "
          f"PyTorch/ours {statistics.median(ratios):5.2f} "
          f"({min(ratios):.2f} .. {max(ratios):.2f})", flush=True)


def main():
    root = Path(__file__).resolve().parents[2]
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bench", default=str(root / "build/release/bench"), metavar="PROGRAM")
    parser.add_argument("--rounds", type=int, default=0, help="default: 15 (cpu), 3 (baby)")
    parser.add_argument("--only", default="", metavar="TEXT",
                        help="only cases whose name holds it, as in 'cpu/float32'")
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
    for recipe in RECIPES:
        for dtype in ("float32", "bfloat16"):
            for dropout in (0.0, 0.2):
                if args.only in f"{recipe}/{dtype}/{dropout}":
                    rounds = args.rounds or (15 if recipe == "cpu" else 3)
                    compare(args.bench, recipe, dtype, dropout, rounds, int(args.processor_time))


if __name__ == "__main__":
    main()
