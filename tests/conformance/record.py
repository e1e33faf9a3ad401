"""Records what Optax does where the public cases do not go, in their format: a line for each case.

python tests/conformance/record.py | gzip -9n > tests/conformance/own.jsonl.gz      (optax 0.2.8, jax 0.10.2)
"""
import json

import numpy as np

import optax_cases as cases


def record(name, config, dtypes, params, grads, tolerance, tags, grad_dtypes=None):
    """`dtypes` is one for all leaves, or one for each."""
    each = lambda types: dict.fromkeys(params, types) if isinstance(types, str) else types
    dtypes, grad_dtypes = each(dtypes), grad_dtypes and each(grad_dtypes)
    array = lambda leaves, types: {p: np.asarray(x, np.float64).astype(cases.DTYPES[types[p]]).astype(np.float64) for p, x in leaves.items()}
    inputs = cases.Inputs(config, array(params, dtypes), dtypes, [array(g, grad_dtypes or dtypes) for g in grads], grad_dtypes)
    rtol, atol = tolerance
    case = cases.case(f"own_{name}", inputs, tags, lambda *_: {"rtol": rtol, "atol": atol})
    print(json.dumps(case, separators=(",", ":")))


W = {"w": [1.0, -2.0, 0.5], "b": [[0.25, 3.0]]}
G = [{"w": [0.5, 0.25, -1.0], "b": [[2.0, -0.125]]}, {"w": [-0.5, 0.75, -1.5], "b": [[1.0, 0.5]]}] * 2
ZEROS = [{"w": [0.5, 0.0, -1.0], "b": [[0.0, -0.125]]}] * 3
LARGE = [{"w": [300.0, 400.0, -10.0], "b": [[0.5, 100.0]]}] * 2
HUGE = [{"w": [1e20, 0.25, -1.0], "b": [[2.0, -3e25]]}] + G
NAN = [{"w": [0.5, np.nan, -1.0], "b": [[2.0, -0.125]]}] + G
NONE = {"w": [0.0, 0.0, 0.0], "b": [[0.0, 0.0]]}
F32 = (5e-6, 1e-6)

record("inject_adam_bf16", {"inject_hyperparams": {"inner": {"adam": {"learning_rate": 0.01}}}}, "bf16", W, G,
       (0.03, 1e-4), ["adam", "half", "inject_hyperparams"])
record("adam_zero_gradient_f16", {"adam": {"learning_rate": 0.01}}, "f16", W, ZEROS,
       (0.004, 1e-5), ["adam", "half", "zeros"])
record("clip_overflow_f16", {"clip_by_global_norm": {"max_norm": 1.0}}, "f16", W, LARGE,
       (0.004, 1e-5), ["clip_by_global_norm", "half", "huge"])
record("apply_every_nan_f32", {"apply_every": {"k": 2}}, "f32", W, NAN, F32, ["apply_every", "nan"])
record("optimistic_narrow_gradient_f32", {"scale_by_optimistic_gradient": {}}, "f32", W, G, (0.03, 1e-3),
       ["dtype", "scale_by_optimistic_gradient"], {"w": "bf16", "b": "f32"})
record("prodigy_no_gradient_f32", {"prodigy": {"estim_lr0": 0.01}}, "f32", W, [NONE] + G, (5e-5, 1e-6),
       ["prodigy", "zeros"])
record("normalize_no_gradient_f32", {"chain": [{"normalize": {}}, {"sgd": {"learning_rate": 0.1}}]}, "f32", W, [NONE] + G,
       F32, ["normalize", "sgd", "zeros"])
record("simplified_ademamix_huge_f32", {"simplified_ademamix": {"learning_rate": 0.1, "weight_decay": 0.01}}, "f32", W, HUGE,
       (2e-4, 1e-6), ["simplified_ademamix", "huge"])
record("rprop_partition_f64", {"partition": {"transforms": {"a": {"rprop": {"learning_rate": 0.1}}, "b": {"adam": {
       "learning_rate": 0.1}}}, "labels": {"w": "a", "b": "b"}}}, "f64", W, G, (1e-12, 1e-13), ["rprop", "partition"])
