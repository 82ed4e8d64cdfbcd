"""PyTorch's side of compare.py: the same models, written anew, and what is measured of them.

A side's run(count) gives the seconds and the processor seconds of each of `count` calls.
"""

import math
import time

import torch
from torch import nn
from torch.nn import functional as F

# name: layers, heads, width, block, batch
RECIPES = {"cpu": (4, 4, 128, 64, 12), "baby": (6, 6, 384, 256, 64)}
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
    def __init__(self, recipe, dropout=0.0, vocabulary=VOCABULARY):
        super().__init__()
        layers, heads, width, block, _ = RECIPES[recipe]
        self.tokens = nn.Embedding(vocabulary, width)
        self.positions = nn.Parameter(torch.empty(block, width))
        self.drop = nn.Dropout(dropout)
        self.blocks = nn.Sequential(*(Block(width, heads, dropout) for _ in range(layers)))
        self.norm = nn.LayerNorm(width, bias=False)
        for weight in self.parameters():  # the head's is the embedding's
            if weight.dim() >= 2:
                nn.init.normal_(weight, std=0.02)
        for block in self.blocks:  # what is added to the residual stream
            for weight in (block.attention.out.weight, block.mlp[2].weight):
                nn.init.normal_(weight, std=0.02 / math.sqrt(2 * layers))

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


def autocast(dtype):
    return torch.autocast("cpu", dtype=torch.bfloat16, enabled=dtype == "bfloat16")


def times(function, count):
    seconds = []
    for _ in range(count):
        start, processor = time.perf_counter(), time.process_time()
        function()
        seconds.append((time.perf_counter() - start, time.process_time() - processor))
    return seconds


class TorchStep:
    """A training step: forward, loss, backward, clipping at 1, AdamW."""

    def __init__(self, recipe, dtype, dropout, vocabulary=VOCABULARY):
        _, _, _, block, batch = RECIPES[recipe]
        self.dtype = dtype
        self.model = Model(recipe, dropout, vocabulary)
        matrices = [p for p in self.model.parameters() if p.dim() >= 2]
        vectors = [p for p in self.model.parameters() if p.dim() < 2]
        self.optimizer = torch.optim.AdamW([{"params": matrices, "weight_decay": 0.1},
                                            {"params": vectors, "weight_decay": 0.0}],
                                           lr=1e-3, betas=(0.9, 0.99))
        self.ids, self.targets = torch.randint(VOCABULARY, (2, batch, block))

    def step(self, ids, targets):
        with autocast(self.dtype):
            loss = self.model(ids, targets)
        loss.item()
        loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)

    def run(self, count):
        return times(lambda: self.step(self.ids, self.targets), count)


class TorchText:
    """A character, after `start` others."""

    def __init__(self, recipe, dtype, start):
        self.dtype = dtype
        self.model = Model(recipe).eval()
        self.ids = torch.randint(VOCABULARY, (1, start))

    def run(self, count):
        with autocast(self.dtype):
            (wall, processor), = times(lambda: self.model.generate(self.ids, count), 1)
        return [(wall / count, processor / count)]


class TorchGemm:
    """A product of a layer; in bfloat16 its weight gradient is rounded to bfloat16 too."""

    def __init__(self, rows, inputs, outputs, dtype, gradient):
        def normal(*shape):
            return torch.randn(*shape).to(getattr(torch, dtype))

        x, w, y = normal(rows, inputs), normal(outputs, inputs), normal(rows, outputs)
        self.a, self.b = {"forward": (x, w.t()), "input_gradient": (y, w),
                          "weight_gradient": (y.t(), x)}[gradient]
        self.c = self.a @ self.b

    def run(self, count):
        return times(lambda: torch.mm(self.a, self.b, out=self.c), count)


class TorchTraining:
    """The CPU recipe on a text as nanoGPT trains it: batches, schedule, evaluations."""

    ITERATIONS, WARM_UP, RATE, EVALUATE_EVERY, EVALUATED = 2000, 100, 1e-3, 250, 20

    def __init__(self, text, dtype):
        ids = sorted(set(text))
        self.training = TorchStep("cpu", dtype, 0.0, len(ids))
        data = torch.tensor([ids.index(c) for c in text])
        self.block, self.batch = RECIPES["cpu"][3:]
        border = int(0.9 * len(data))
        self.splits = [part.unfold(0, self.block + 1, 1) for part in (data[:border], data[border:])]
        self.validation_loss = None

    def draw(self, windows):
        chosen = windows[torch.randint(len(windows), (self.batch,))]
        return chosen[:, :-1].contiguous(), chosen[:, 1:].contiguous()

    @torch.no_grad()
    def evaluate(self):
        model = self.training.model.eval()
        losses = []
        for windows in self.splits:
            with autocast(self.training.dtype):
                drawn = [model(*self.draw(windows)).item() for _ in range(self.EVALUATED)]
            losses.append(sum(drawn) / len(drawn))
        model.train()
        return losses[1]

    def rate(self, iteration):
        if iteration < self.WARM_UP:
            return self.RATE * (iteration + 1) / (self.WARM_UP + 1)
        part = (iteration - self.WARM_UP) / (self.ITERATIONS - self.WARM_UP)
        return self.RATE * (0.1 + 0.9 * 0.5 * (1 + math.cos(math.pi * part)))

    def iterations(self):
        """Yields after each iteration."""
        for iteration in range(self.ITERATIONS + 1):
            if iteration % self.EVALUATE_EVERY == 0:
                self.validation_loss = self.evaluate()
            for group in self.training.optimizer.param_groups:
                group["lr"] = self.rate(iteration)
            self.training.step(*self.draw(self.splits[0]))
            yield
