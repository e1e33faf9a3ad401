"""Prints the losses of `problems.rs` after ten steps of Optax's optimizers, for `optimizers.rs`.

python tests/catalogue/convergence/record.py "contrib.muon(rate)" 0.1 0.1 0.1      (optax 0.2.8, jax 0.10.2)

The expression is of the schedule `rate`, which fades to 0 from the learning rate of each problem.
"""
import sys

import jax
import jax.numpy as jnp
import optax
from optax import contrib  # noqa: F401, for expressions

jax.config.update("jax_enable_x64", True)
MASK = (1 << 64) - 1


def noise(seed, leaf, i):
    x = seed ^ leaf << 40 ^ i
    for _ in range(3):
        x = (x ^ x >> 31) * 0x9E3779B97F4A7C15 & MASK
        x = (x << 29 | x >> 35) & MASK
    return (x >> 11) / (1 << 52) - 1.0


NORMAL = jnp.array([noise(5, 0, i) for i in range(10)])
CENTRE = jnp.array([0.5 * noise(6, 0, i) for i in range(10)])
SCALES = jnp.array([1.0, 2.0, 0.5, 3.0])
POINTS = jnp.array([[noise(7, p, j) for j in range(4)] for p in range(60)]) * SCALES
BLUR = jnp.array([noise(8, p, 0) for p in range(60)])
LABELS = jnp.sign(POINTS[:, 0] - POINTS[:, 1] + 0.5 * POINTS[:, 3] + 0.7 * BLUR + 0.2)


def quadratic(x):
    v = x[0].ravel() - CENTRE
    y = v - 2.0 * NORMAL.dot(v) / NORMAL.dot(NORMAL) * NORMAL
    return 0.5 * jnp.sum(100.0 ** (jnp.arange(10) / 9.0) * y * y)


def rosenbrock(x):
    return (1.0 - x[0][0]) ** 2 + 100.0 * (x[0][1] - x[0][0] ** 2) ** 2


def logistic(x):
    margins = LABELS * (POINTS @ x[0] + x[1])
    return jnp.mean(jnp.log1p(jnp.exp(-margins))) + 0.01 * (jnp.sum(x[0] ** 2) + x[1] ** 2)


PROBLEMS = [(quadratic, [jnp.ones((2, 5))]), (rosenbrock, [jnp.array([-1.2, 1.0])]),
            (logistic, [jnp.array([0.5, -0.5, 0.25, 1.0]), jnp.array(0.5)])]

losses = []
for (loss, x), start in zip(PROBLEMS, map(float, sys.argv[2:])):
    rate = optax.cosine_decay_schedule(start, 3000)
    optimizer = optax.with_extra_args_support(eval(sys.argv[1]))
    state = optimizer.init(x)
    for _ in range(10):
        value, gradient = jax.value_and_grad(loss)(x)
        given = {"value": value, "grad": gradient, "value_fn": loss}
        if "opaque_mode" in sys.argv[1]:
            given = {"grad_fn": lambda x, _: jax.grad(loss)(x)}
        updates, state = optimizer.update(gradient, state, x, **given)
        x = optax.apply_updates(x, updates)
    losses.append(float(loss(x)))
print(losses)
