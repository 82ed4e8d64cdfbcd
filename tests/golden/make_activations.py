#!/usr/bin/env python3
"""Writes activations.json beside itself: softmax, losses, norms and activations as PyTorch computes
them in float64, with their gradients.

Needs PyTorch 2 (`pip install torch`). Each case holds its inputs, the gradient dy that is sent back
from the result y, and the gradients of the inputs; ops/golden_test.cpp runs the op of that name.
"""
import json
import pathlib

import torch
import torch.nn.functional as F

CASES = {
    "exp": ([(3, 5)], torch.exp),
    "log": ([(3, 5)], torch.log),
    "sqrt": ([(3, 5)], torch.sqrt),
    "tanh": ([(3, 5)], torch.tanh),
    "sigmoid": ([(3, 5)], torch.sigmoid),
    "relu": ([(3, 5)], torch.relu),
    "gelu": ([(3, 5)], F.gelu),
    "gelu/tanh": ([(3, 5)], lambda x: F.gelu(x, approximate="tanh")),
    "softmax/0": ([(2, 3, 4)], lambda x: torch.softmax(x, 0)),
    "softmax/1": ([(2, 3, 4)], lambda x: torch.softmax(x, 1)),
    "softmax/-1": ([(2, 3, 4)], lambda x: torch.softmax(x, -1)),
    "log_softmax/0": ([(2, 3, 4)], lambda x: torch.log_softmax(x, 0)),
    "log_softmax/-1": ([(2, 3, 4)], lambda x: torch.log_softmax(x, -1)),
    # Targets 3, 0, -100 (ignored), 4.
    "cross_entropy": ([(4, 5)], lambda x: F.cross_entropy(x, torch.tensor([3, 0, -100, 4]))),
    "layer_norm": ([(3, 6), (6,), (6,)], lambda x, w, b: F.layer_norm(x, (6,), w, b)),
    "layer_norm/no_bias": ([(3, 6), (6,)], lambda x, w: F.layer_norm(x, (6,), w)),
    "layer_norm/eps": ([(3, 6)], lambda x: F.layer_norm(x, (6,), eps=0.5)),
}


def values(tensor):
    return {"shape": list(tensor.shape), "hex": [v.hex() for v in tensor.flatten().tolist()]}


def run(name, shapes, function):
    inputs = [2 * torch.randn(shape, dtype=torch.float64) for shape in shapes]
    if name in ("log", "sqrt"):
        inputs = [0.1 + x.abs() for x in inputs]
    for x in inputs:
        x.requires_grad_()
    y = function(*inputs)
    dy = torch.randn(y.shape, dtype=torch.float64)
    y.backward(dy)
    return {
        "inputs": [values(x.detach()) for x in inputs],
        "y": values(y.detach()),
        "dy": values(dy),
        "grads": [values(x.grad) for x in inputs],
    }


torch.manual_seed(1337)
cases = {name: run(name, *case) for name, case in CASES.items()}
path = pathlib.Path(__file__).with_name("activations.json")
lines = ",\n".join(f"{json.dumps(name)}: {json.dumps(case)}" for name, case in cases.items())
path.write_text("{\n" + lines + "\n}\n")
