"""Records what Optax's line searches do on small functions, in 64 bits: writes linesearch_optax.json beside it.

    python record_linesearch.py

Of each step: the step size, the loss after it, the parameters after it, and how many points were tried.
"""

import json
import pathlib

import jax
import jax.numpy as jnp
import optax

jax.config.update("jax_enable_x64", True)


def rosenbrock(p):
    return (1 - p[0]) ** 2 + 100 * (p[1] - p[0] ** 2) ** 2


def himmelblau(p):
    return (p[0] ** 2 + p[1] - 11) ** 2 + (p[0] + p[1] ** 2 - 7) ** 2


def barrier(p):
    """Its minimum is at (1, 2); not a number where a parameter is negative."""
    return jnp.sum(p * jnp.array([1.0, 0.5]) - jnp.log(p))


PROBLEMS = {"rosenbrock": rosenbrock, "himmelblau": himmelblau, "barrier": barrier}


def zoom(scale, steps, **arguments):
    config = {"chain": [{"scale": {"step_size": scale}}, {"scale_by_zoom_linesearch": {"max_linesearch_steps": steps, **arguments}}]}
    return config, optax.chain(optax.scale(scale), optax.scale_by_zoom_linesearch(steps, **arguments))


def backtracking(scale, steps, **arguments):
    search = {"max_backtracking_steps": steps, **arguments}
    config = {"chain": [{"scale": {"step_size": scale}}, {"scale_by_backtracking_linesearch": search}]}
    return config, optax.chain(optax.scale(scale), optax.scale_by_backtracking_linesearch(steps, **arguments))


def lbfgs(steps=20, guess="one", **arguments):
    search = {"max_linesearch_steps": steps, "initial_guess_strategy": guess, **arguments}
    config = {"lbfgs": {"linesearch": {"scale_by_zoom_linesearch": search}}}
    return config, optax.lbfgs(linesearch=optax.scale_by_zoom_linesearch(steps, initial_guess_strategy=guess, **arguments))


RUNS = [
    ("rosenbrock", [-1.2, 1.0], 6, zoom(-1.0, 20)),
    ("rosenbrock", [-1.2, 1.0], 6, zoom(-1e-5, 20)),
    ("rosenbrock", [-1.2, 1.0], 5, zoom(-1.0, 30, curv_rtol=0.1)),
    ("rosenbrock", [-1.2, 1.0], 5, zoom(-1.0, 30, approx_dec_rtol=None, slope_rtol=1e-2, curv_rtol=0.3)),
    ("rosenbrock", [-1.2, 1.0], 4, zoom(-1.0, 20, initial_guess_strategy="one", stepsize_precision=1e-2)),
    ("rosenbrock", [-1.2, 1.0], 4, zoom(-1.0, 3)),
    ("rosenbrock", [-1.2, 1.0], 3, zoom(1.0, 6)),
    ("himmelblau", [0.0, 0.0], 6, zoom(-1e-3, 20, max_learning_rate=3.0)),
    ("himmelblau", [0.0, 0.0], 6, zoom(-1e-3, 20, increase_factor=5.0, tol=1.0)),
    ("barrier", [0.1, 5.0], 5, zoom(-1.0, 20)),
    ("rosenbrock", [-1.2, 1.0], 15, lbfgs()),
    ("himmelblau", [0.0, 0.0], 8, lbfgs()),
    ("barrier", [0.1, 5.0], 8, lbfgs(guess="keep")),
    ("rosenbrock", [-1.2, 1.0], 8, backtracking(-1.0, 60)),
    ("rosenbrock", [-1.2, 1.0], 4, backtracking(-1.0, 5)),
    ("rosenbrock", [-1.2, 1.0], 3, backtracking(1.0, 6)),
    ("himmelblau", [0.0, 0.0], 8, backtracking(-0.1, 40, slope_rtol=0.2, decrease_factor=0.5, increase_factor=2.0)),
    ("himmelblau", [0.0, 0.0], 8, backtracking(-0.02, 40, increase_factor=float("inf"), max_learning_rate=2.0, rtol=1e-3)),
    ("barrier", [0.1, 5.0], 5, backtracking(-1.0, 40, atol=0.5)),
]


def find(state, name):
    return optax.tree.get(state, name)


def run(problem, start, steps, optimizer):
    function = PROBLEMS[problem]

    @jax.jit
    def one(params, state):
        value, grad = jax.value_and_grad(function)(params)
        updates, state = optimizer.update(grad, state, params, value=value, grad=grad, value_fn=function)
        return optax.apply_updates(params, updates), state

    params = jnp.array(start)
    state = optimizer.init(params)
    recorded = []
    for _ in range(steps):
        params, state = one(params, state)
        recorded.append({
            "learning_rate": float(find(state, "learning_rate")),
            "value": float(function(params)),
            "params": [float(p) for p in params],
            "evaluations": int(find(state, "num_linesearch_steps")),
        })
    return recorded


def plain(value):
    """JSON has no infinities."""
    if isinstance(value, dict):
        return {key: plain(inside) for key, inside in value.items()}
    if isinstance(value, list):
        return [plain(inside) for inside in value]
    return "inf" if value == float("inf") else value


def main():
    runs = [
        {"problem": problem, "start": start, "config": plain(config), "steps": run(problem, start, steps, optimizer)}
        for problem, start, steps, (config, optimizer) in RUNS
    ]
    text = json.dumps({"optax": optax.__version__, "runs": runs}, indent=1) + "\n"
    pathlib.Path(__file__).with_name("linesearch_optax.json").write_text(text)


if __name__ == "__main__":
    main()
