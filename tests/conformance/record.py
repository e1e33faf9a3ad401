"""Records what optax does where the public cases do not go, in their format: a line for each case.

python tests/conformance/record.py | gzip -9n > tests/conformance/own.jsonl.gz      (optax 0.2.8, jax 0.10.2)
"""
import json

import jax.numpy as jnp
import numpy as np
import optax

DTYPES = {"bf16": jnp.bfloat16, "f16": jnp.float16, "f32": jnp.float32}
NAMES = {np.dtype(value): key for key, value in DTYPES.items()}


def number(x):
    x = float(x)
    return x if np.isfinite(x) else {"nan": "nan", "inf": "inf", "-inf": "-inf"}[str(x)]


def leaf(array):
    wide = np.asarray(array, np.float64)
    return {"dtype": NAMES[array.dtype], "shape": list(array.shape), "data": [number(x) for x in wide.ravel()]}


def tree(arrays):
    return {path: leaf(array) for path, array in sorted(arrays.items())}


def record(name, config, build, dtype, params, grads, tolerance, tags):
    cast = lambda values: {path: jnp.asarray(value, DTYPES[dtype]) for path, value in values.items()}
    params, steps = cast(params), []
    case = {"name": f"own_{name}_{dtype}", "kind": "transform", "source": f"optax {optax.__version__}",
            "tags": sorted(tags + [f"dtype:{dtype}"]), "config": config, "params": tree(params)}
    state = build.init(params)
    for grad in map(cast, grads):
        updates, state = build.update(grad, state, params)
        params = optax.apply_updates(params, updates)
        step = {"grads": tree(grad), "expected_updates": tree(updates), "expected_params": tree(params)}
        if hasattr(state, "hyperparams"):
            step["expected_hyperparams"] = {k: number(v) for k, v in state.hyperparams.items()}
        steps.append(step)
    rtol, atol = tolerance
    print(json.dumps({**case, "steps": steps, "tolerance": {"rtol": rtol, "atol": atol}}, separators=(",", ":")))


W = {"w": [1.0, -2.0, 0.5], "b": [[0.25, 3.0]]}
G = [{"w": [0.5, 0.25, -1.0], "b": [[2.0, -0.125]]}, {"w": [-0.5, 0.75, -1.5], "b": [[1.0, 0.5]]}] * 2
ZEROS = [{"w": [0.5, 0.0, -1.0], "b": [[0.0, -0.125]]}] * 3
LARGE = [{"w": [300.0, 400.0, -10.0], "b": [[0.5, 100.0]]}] * 2

inject = optax.inject_hyperparams(optax.adam)(learning_rate=0.01)
record("inject_adam", {"inject_hyperparams": {"inner": {"adam": {"learning_rate": 0.01}}}}, inject, "bf16", W, G,
       (0.03, 1e-4), ["adam", "half", "inject_hyperparams"])
record("adam_zero_gradient", {"adam": {"learning_rate": 0.01}}, optax.adam(0.01), "f16", W, ZEROS,
       (0.004, 1e-5), ["adam", "half", "zeros"])
record("clip_overflow", {"clip_by_global_norm": {"max_norm": 1.0}}, optax.clip_by_global_norm(1.0), "f16", W, LARGE,
       (0.004, 1e-5), ["clip_by_global_norm", "half", "huge"])
