#!/usr/bin/env python3
"""Writes the seeds of the fuzz targets: make_seeds.py FOLDER makes FOLDER/TARGET/NAME."""
import json
import pathlib
import struct
import sys


def tensors(entries, data=b"", metadata=None):
    header = dict(entries)
    if metadata:
        header["__metadata__"] = metadata
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + data


def entry(dtype, shape, begin, end):
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


SAFETENSORS = {
    "none": tensors({}),
    "metadata": tensors({}, metadata={"format": "pt"}),
    "types": tensors({"i": entry("I64", [1], 0, 8), "d": entry("F64", [], 8, 16),
                      "f": entry("F32", [2, 1], 16, 24), "h": entry("BF16", [2], 24, 28),
                      "b": entry("BOOL", [0, 3], 28, 28)}, b"\0" * 28),
    "overlap": tensors({"a": entry("F32", [2], 0, 8), "b": entry("F32", [2], 0, 8)}, b"\0" * 8),
    "huge": tensors({"a": entry("F32", [2, 2 ** 62], 0, 8)}, b"\0" * 8),
}
SETTINGS = {
    "out_dir": "out", "data": "a.txt", "preset": "cpu", "model": "gpt", "n_layer": 1, "n_head": 2,
    "n_embd": 4, "head_size": 4, "attention_scale": "sqrt_dk", "block_size": 4, "bias": False,
    "dropout": 0.2, "batch_size": 2, "learning_rate": 1e-3, "seed": -1, "dtype": "float32"}
JSON = {
    "config": (0, {"version": 1, "model": "gpt", "vocab_size": 3, "block_size": 4, "n_embd": 4,
                   "n_layer": 1, "n_head": 2, "dropout": 0.0, "bias": False}),
    "head": (0, {"version": 1, "model": "head", "vocab_size": 3, "block_size": 4, "n_embd": 4,
                 "head_size": 4, "attention_scale": "none"}),
    "vocab": (1, {"version": 1, "symbols": ["a", "b", "\u65e5"]}),
    "trainer": (2, {"version": 1, "next_iter": 5, "eval_done": True, "best_val_loss": 2.5,
                    "optimizer_steps": 5, "batch": [3, 99], "dropout_calls": 7,
                    "generator": "00" * 5056}),
    "settings": (3, {"version": 1, "chargrad": "0.1.0", "kernels": "ref", "settings": SETTINGS,
                     "data": {"path": "/a.txt", "bytes": 3, "sha256": "00"}}),
    "iter": (4, {"kind": "iter", "iter": 2, "loss": 2.5}),
    "nested": (5, [[[[{"a": [1e308, -0.0, "\ud83d\ude00"]}]]]]),
}
TEXTS = {"ascii": b"\x05abc\n" * 9, "mark": b"\x02\xef\xbb\xbfhello\r\n", "empty": b"\1",
         "wide": "\x07h\u00e9\u2014\u65e5\U0001f600\n".encode(), "bad": b"\x03A\x92B"}
PROMPTS = {"seen": b"abc\0cab", "unseen": b"abc\0a?b", "wide": "\u65e5\u672c\0\u65e5".encode(),
           "bad": b"abc\0\xff", "nothing": b""}
FLAGS = {"new": "--data=a.txt\n--n-layer=2\n--bias\nfalse\n--learning_rate\n1e-3",
         "resume": "--resume\n--max_iters=9\n--out_dir=x", "help": "-h", "end": "--\nword",
         "sample": "--prompt=\n--top_k=0\n--temperature=0\n--top_p=0.5", "near": "--n_layers=3",
         "numbers": "--seed=-9223372036854775808\n--threads=1e3\n--dropout=nan\n--min_lr=1e999"}


def main():
    folder = pathlib.Path(sys.argv[1])
    seeds = {"safetensors": SAFETENSORS, "text": TEXTS, "prompt": PROMPTS,
             "flags": {name: text.encode() for name, text in FLAGS.items()},
             "json": {name: bytes([kind]) + json.dumps(value).encode() + b"\n"
                      for name, (kind, value) in JSON.items()}}
    for target, named in seeds.items():
        (folder / target).mkdir(parents=True, exist_ok=True)
        for name, data in named.items():
            (folder / target / name).write_bytes(data)


if __name__ == "__main__":
    main()
