#!/usr/bin/env python3
"""Writes rng.json beside itself: random numbers as PyTorch's CPU generator draws them.

Needs PyTorch 2.7 or later (`pip install torch`) on an x86 CPU with AVX2. The tests of the generator
and of its kernels replay each case by its name.
"""
import json
import pathlib
import re

import torch

F32, F64, BF16 = torch.float32, torch.float64, torch.bfloat16
WEIGHTS = [[0.5, 0.0, 2.0, 0.25, 1.0, 0.125], [3.0, 1.0, 0.0, 0.0, 1.0, 0.5]]


def empty(n, dtype=F32):
    return torch.empty(n, dtype=dtype)


def linear():
    layer = torch.nn.Linear(4, 3)
    return torch.cat([layer.weight.flatten(), layer.bias])


def mixture():
    torch.randn(3), torch.rand(2), torch.randn(20), torch.randint(10, (2,))
    return torch.randn(3)


def strided_normal():
    return empty(34)[::2].normal_(0.5, 0.02)


def filled(x, method, *args):
    """An in-place fill of a tensor that is not contiguous, in row-major order."""
    return getattr(x, method)(*args).contiguous()


def permuted():
    return torch.empty(2, 3, 4).permute(1, 2, 0)


def transposed_weights():
    return torch.tensor(WEIGHTS).t() / 4


def sampler():
    p = torch.softmax(torch.tensor([0.1, -0.2, 0.3, -0.2, 0.5]), 0)
    return torch.cat([torch.multinomial(p, 1) for _ in range(20)])


CASES = {
    "rand(8)": (1337, lambda: torch.rand(8)),
    "rand(8) float64": (1337, lambda: torch.rand(8, dtype=F64)),
    "rand(4), seed 0": (0, lambda: torch.rand(4)),
    "rand(4), seed -1": (-1, lambda: torch.rand(4)),
    "rand(4), seed 2**32 + 1337": (2**32 + 1337, lambda: torch.rand(4)),
    "uniform(9, -0.3, 0.7)": (42, lambda: empty(9).uniform_(-0.3, 0.7)),
    "uniform(5, -0.3, 0.7) float64": (42, lambda: empty(5, F64).uniform_(-0.3, 0.7)),
    "randn(5)": (1337, lambda: torch.randn(5)),
    "randn(15), randn(3)": (7, lambda: torch.cat([torch.randn(15), torch.randn(3)])),
    "randn(16)": (1337, lambda: torch.randn(16)),
    "randn(37)": (1337, lambda: torch.randn(37)),
    "randn(20) float64": (1337, lambda: torch.randn(20, dtype=F64)),
    "normal(20, 0.5, 0.02)": (42, lambda: empty(20).normal_(0.5, 0.02)),
    "normal(18, 0.5, 0.02) float64": (42, lambda: empty(18, F64).normal_(0.5, 0.02)),
    "normal(5, 0.5, 0.02) float64": (42, lambda: empty(5, F64).normal_(0.5, 0.02)),
    "strided normal(17, 0.5, 0.02)": (42, strided_normal),
    "randint(65, 12)": (1337, lambda: torch.randint(65, (12,))),
    "randint(-5, 5, 12)": (1337, lambda: torch.randint(-5, 5, (12,))),
    "randint(2**28 - 1, 4)": (1337, lambda: torch.randint(2**28 - 1, (4,))),
    "randint(2**28, 4)": (1337, lambda: torch.randint(2**28, (4,))),
    "randint(-5, 2**40, 4)": (1337, lambda: torch.randint(-5, 2**40, (4,))),
    "randperm(20)": (1337, lambda: torch.randperm(20)),
    "bernoulli(24, 0.9)": (1337, lambda: empty(24).bernoulli_(0.9)),
    "bernoulli(0.9 x 24)": (1337, lambda: torch.bernoulli(torch.full((24,), 0.9))),
    "bernoulli(0.9 x 24) float64": (1337, lambda: torch.bernoulli(torch.full((24,), 0.9, dtype=F64))),
    "exponential(8, 1)": (42, lambda: empty(8).exponential_(1)),
    "exponential(5, 2.7) float64": (42, lambda: empty(5, F64).exponential_(2.7)),
    "20 x multinomial(softmax, 1)": (1337, sampler),
    "multinomial(2 x 6, 4)": (1337, lambda: torch.multinomial(torch.tensor(WEIGHTS), 4)),
    "multinomial(2 x 6, 12, replacement)": (
        1337,
        lambda: torch.multinomial(torch.tensor(WEIGHTS), 12, True),
    ),
    "multinomial(2 x 6, 3) float64": (
        1337,
        lambda: torch.multinomial(torch.tensor(WEIGHTS, dtype=F64), 3),
    ),
    "Linear(4, 3)": (1337, linear),
    "Embedding(65, 8), first 24": (1337, lambda: torch.nn.Embedding(65, 8).weight.flatten()[:24]),
    "mixture": (5, mixture),
}

# What is special to tensors: strides, dtypes.
OPS = {
    "permuted(3, 4, 2).uniform_()": (5, lambda: filled(permuted(), "uniform_")),
    "permuted(3, 4, 2).normal_()": (5, lambda: filled(permuted(), "normal_")),
    "permuted(3, 4, 2).exponential_()": (5, lambda: filled(permuted(), "exponential_")),
    "permuted(3, 4, 2).bernoulli_(0.4)": (5, lambda: filled(permuted(), "bernoulli_", 0.4)),
    "permuted(3, 4, 2)[::2, 1:].normal_(0.5, 0.02)": (
        5,
        lambda: filled(permuted()[::2, 1:], "normal_", 0.5, 0.02),
    ),
    "bernoulli(transposed)": (5, lambda: torch.bernoulli(transposed_weights().clamp(0, 1))),
    "rand(20) bfloat16": (17, lambda: torch.rand(20, dtype=BF16)),
    "bfloat16 uniform_(0.99, 1)": (17, lambda: empty(20, BF16).uniform_(0.99, 1)),
    "randn(5) bfloat16": (17, lambda: torch.randn(5, dtype=BF16)),
    "randn(21), rand(1) bfloat16": (
        17,
        lambda: torch.cat([torch.randn(21, dtype=BF16), torch.rand(1, dtype=BF16)]),
    ),
    "exponential_(2.7) bfloat16": (17, lambda: empty(6, BF16).exponential_(2.7)),
    "bernoulli_(0.4) int64": (17, lambda: empty(12, torch.int64).bernoulli_(0.4)),
    "bernoulli_(0.4) bool": (17, lambda: empty(12, torch.bool).bernoulli_(0.4).long()),
    "bernoulli(bfloat16)": (17, lambda: torch.bernoulli(torch.full((12,), 0.4, dtype=BF16))),
    "multinomial(bfloat16, 3)": (
        17,
        lambda: torch.multinomial(torch.tensor(WEIGHTS, dtype=BF16), 3),
    ),
}

# Large fills, by a checksum of their bytes: 4,096 is a whole number of blocks, 100,003 is not.
FILLS = {
    "rand(100003)": (3, lambda: torch.rand(100003)),
    "uniform(100003, -0.3, 0.7)": (3, lambda: empty(100003).uniform_(-0.3, 0.7)),
    "randn(100003)": (3, lambda: torch.randn(100003)),
    "randn(4096)": (3, lambda: torch.randn(4096)),
    "normal(100003, 0.5, 0.02)": (3, lambda: empty(100003).normal_(0.5, 0.02)),
    "randperm(100003)": (3, lambda: torch.randperm(100003)),
}


def short_hex(value):
    return re.sub(r"\.?0*p", "p", float(value).hex())


def fnv1a(data):
    value = 0xCBF29CE484222325
    for byte in data:
        value = (value ^ byte) * 0x100000001B3 % 2**64
    return f"{value:016x}"


def draw(seed, f):
    torch.manual_seed(seed)
    return f().detach()


def state():
    """A used stream with a cached normal."""
    torch.manual_seed(-1)
    torch.rand(700), torch.randn(3)
    data = bytes(torch.get_rng_state().tolist())
    return {
        "head": data[:24].hex(),
        "tail": data[5016:].hex(),
        "fnv1a": fnv1a(data),
        "next": [short_hex(v) for v in torch.randn(2)],
    }


def values_of(cases):
    rows = []
    for name, (seed, f) in cases.items():
        x = draw(seed, f).flatten()
        whole = bool((x == x.floor()).all()) if x.is_floating_point() else True
        values = {"ints": [int(v) for v in x]} if whole else {"hex": [short_hex(v) for v in x]}
        rows.append({"name": name, "seed": seed, **values})
    return rows


def main():
    cases, ops = values_of(CASES), values_of(OPS)
    fills = [
        {"name": name, "seed": seed, "fnv1a": fnv1a(draw(seed, f).numpy().tobytes())}
        for name, (seed, f) in FILLS.items()
    ]
    lines = [f'"made_with": "torch {torch.__version__}"']
    for key, rows in (("cases", cases), ("ops", ops), ("fills", fills)):
        lines.append(f'"{key}": [\n' + ",\n".join("  " + json.dumps(row) for row in rows) + "\n]")
    lines.append('"state": ' + json.dumps(state()))
    path = pathlib.Path(__file__).with_name("rng.json")
    path.write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    main()
