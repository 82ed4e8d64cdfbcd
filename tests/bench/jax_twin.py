"""JAX's side of compare.py: one compiled loop that draws characters with kept keys and values."""

import jax
import jax.numpy as jnp

from torch_twin import RECIPES, VOCABULARY, times


def norm(x, weight):
    x = x.astype(jnp.float32)
    centred = x - x.mean()
    return centred * jax.lax.rsqrt((centred * centred).mean() + 1e-5) * weight


class JaxText:
    """A character, after one other, up to the block's end."""

    def __init__(self, recipe, dtype):
        layers, self.heads, width, self.block, _ = RECIPES[recipe]
        self.dtype = jnp.dtype(dtype)
        keys = iter(jax.random.split(jax.random.key(1337), 4 * layers + 2))

        def normal(*shape):
            return 0.02 * jax.random.normal(next(keys), shape)

        self.layers = [{"norm1": jnp.ones(width), "norm2": jnp.ones(width),
                        "qkv": normal(width, 3 * width).astype(dtype),
                        "out": normal(width, width).astype(dtype),
                        "up": normal(width, 4 * width).astype(dtype),
                        "down": normal(4 * width, width).astype(dtype)} for _ in range(layers)]
        self.ends = {"tokens": normal(VOCABULARY, width), "positions": normal(self.block, width),
                     "norm": jnp.ones(width)}
        self.loop = jax.jit(self.draw, static_argnums=3)
        self.compiled = set()  # counts

    def layer(self, x, position, w, keys, values):
        """x (C); keys, values (H, T, D) -> the same, with this position's."""
        q, k, v = jnp.split((norm(x, w["norm1"]).astype(self.dtype) @ w["qkv"]), 3)
        q, k, v = (part.reshape(self.heads, 1, -1) for part in (q, k, v))
        keys = jax.lax.dynamic_update_slice(keys, k, (0, position, 0))
        values = jax.lax.dynamic_update_slice(values, v, (0, position, 0))
        scores = jnp.einsum("hqd,htd->hqt", q, keys).astype(jnp.float32) * q.shape[-1] ** -0.5
        scores = jnp.where(jnp.arange(self.block) <= position, scores, -jnp.inf)
        weights = jax.nn.softmax(scores, axis=-1).astype(self.dtype)
        x = x + jnp.einsum("hqt,htd->hqd", weights, values).reshape(-1) @ w["out"]
        hidden = jax.nn.gelu(norm(x, w["norm2"]).astype(self.dtype) @ w["up"], approximate=False)
        return x + hidden @ w["down"], keys, values

    def draw(self, layers, ends, key, count):
        def character(carry, position):
            token, caches, key = carry
            x, now = ends["tokens"][token] + ends["positions"][position], []
            for weights, cache in zip(layers, caches):
                x, *cache = self.layer(x, position, weights, *cache)
                now.append(cache)
            key, here = jax.random.split(key)
            token = jax.random.categorical(here, norm(x, ends["norm"]) @ ends["tokens"].T)
            return (token, now, key), token

        width = ends["norm"].shape[0]
        empty = jnp.zeros((self.heads, self.block, width // self.heads), self.dtype)
        _, tokens = jax.lax.scan(character, (0, [[empty, empty] for _ in layers], key),
                                 jnp.arange(count))
        return tokens

    def run(self, count):
        def draw():
            self.loop(self.layers, self.ends, jax.random.key(1), count).block_until_ready()

        if count not in self.compiled:
            draw()
            self.compiled.add(count)
        (wall, processor), = times(draw, 1)
        return [(wall / count, processor / count)]
