"""Records what Optax does where the public cases do not go, in their format: a line for each case.

python tests/conformance/record.py | gzip -9n > tests/conformance/own.jsonl.gz      (optax 0.2.8, jax 0.10.2)
"""
import json

import jax.numpy as jnp
import numpy as np
from optax import projections

import optax_cases as cases


def record(name, config, dtypes, params, grads, tolerance, tags, grad_dtypes=None, values=None):
    """`dtypes` is one for all leaves, or one for each."""
    each = lambda types: dict.fromkeys(params, types) if isinstance(types, str) else types
    dtypes, grad_dtypes = each(dtypes), grad_dtypes and each(grad_dtypes)
    array = lambda leaves, types: {p: np.asarray(x, np.float64).astype(cases.DTYPES[types[p]]).astype(np.float64) for p, x in leaves.items()}
    inputs = cases.Inputs(config, array(params, dtypes), dtypes, [array(g, grad_dtypes or dtypes) for g in grads], grad_dtypes, values)
    rtol, atol = tolerance
    case = cases.case(f"own_{name}", inputs, tags, lambda *_: {"rtol": rtol, "atol": atol})
    print(json.dumps(case, separators=(",", ":")))


def project(name, projection, tree, args, tags):
    """Arguments are numbers or trees, all in `f32`."""
    arrays = lambda leaves: {path: jnp.asarray(x, jnp.float32) for path, x in leaves.items()}
    written = lambda leaves: {path: cases.leaf(x) for path, x in sorted(arrays(leaves).items())}
    given = {key: cases.nest(arrays(x)) if isinstance(x, dict) else x for key, x in args.items()}
    expected = getattr(projections, projection)(cases.nest(arrays(tree)), **given)
    print(json.dumps({
        "name": f"own_{name}_f32", "kind": "projection", "source": cases.SOURCE, "tags": sorted({"dtype:f32", *tags}),
        "tolerance": {"rtol": 5e-6, "atol": 1e-6}, "projection": projection, "tree": written(tree),
        "args": {key: {"tree": written(x)} if isinstance(x, dict) else x for key, x in args.items()},
        "expected": cases.tree(expected)}, separators=(",", ":")))


W = {"w": [1.0, -2.0, 0.5], "b": [[0.25, 3.0]]}
G = [{"w": [0.5, 0.25, -1.0], "b": [[2.0, -0.125]]}, {"w": [-0.5, 0.75, -1.5], "b": [[1.0, 0.5]]}] * 2
ZEROS = [{"w": [0.5, 0.0, -1.0], "b": [[0.0, -0.125]]}] * 3
LARGE = [{"w": [300.0, 400.0, -10.0], "b": [[0.5, 100.0]]}] * 2
HUGE = [{"w": [1e20, 0.25, -1.0], "b": [[2.0, -3e25]]}] + G
NAN = [{"w": [0.5, np.nan, -1.0], "b": [[2.0, -0.125]]}] + G
INFINITE = G[:1] + [{"w": [np.inf, 0.25, -1.0], "b": [[2.0, -np.inf]]}] + G
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
FIRST = {"w": [0.02793, -0.1047, 0.9679], "b": [[1.302, -0.0541]]}
PLATEAU = {"chain": [{"sgd": {"learning_rate": 0.1}}, {"reduce_on_plateau": {"factor": 0.5, "patience": 1}}]}
record("multi_steps_polyak_f32", {"multi_steps": {"inner": {"polyak_sgd": {"max_learning_rate": 4.0}}, "every_k_schedule": 2}},
       "f32", W, G, F32, ["multi_steps", "polyak_sgd", "value"], values=[3.0, 1.0, 2.0, 0.25])
record("multi_steps_sum_polyak_f32", {"multi_steps": {"inner": {"polyak_sgd": {"max_learning_rate": 4.0}}, "every_k_schedule": 2,
       "use_grad_mean": False}}, "f32", W, G, F32, ["multi_steps", "polyak_sgd", "value"], values=[3.0, 1.0, 2.0, 0.25])
record("multi_steps_plateau_f32", {"multi_steps": {"inner": PLATEAU, "every_k_schedule": 2}}, "f32", W, G + G, F32,
       ["multi_steps", "reduce_on_plateau", "value"], values=[1.0, 4.0, 3.0, 2.0, 4.0, 1.0, 2.0, 3.0])
record("factored_rms_offset_f32", {"scale_by_factored_rms": {"factored": False, "step_offset": 2}}, "f32", W, G, F32,
       ["scale_by_factored_rms"])
record("stddev_first_step_f64", {"scale_by_stddev": {"decay": 0.647, "eps": 0.001, "eps_in_sqrt": False, "bias_correction": True}},
       "f64", W, [FIRST] + G, (1e-9, 1e-9), ["scale_by_stddev"])
record("rmsprop_centered_first_step_f32", {"rmsprop": {"learning_rate": 0.1, "decay": 0.647, "eps": 0.001, "eps_in_sqrt": False,
       "bias_correction": True, "centered": True, "momentum": 0.5}}, "f32", W, [FIRST] + G,
       F32, ["rmsprop"])
record("sam_huge_f32", {"sam": {"optimizer": {"adamw": {"learning_rate": 0.01}}, "adv_optimizer": {"sgd": {
       "learning_rate": 1e-20}}}}, "f32", W, HUGE, F32, ["huge", "sam"])
record("sam_adam_huge_f32", {"sam": {"optimizer": {"sgd": {"learning_rate": 1e-20}}, "adv_optimizer": {"adam": {
       "learning_rate": 0.01}}, "reset_state": False}}, "f32", W, HUGE, F32, ["huge", "sam"])
record("sam_normalize_no_gradient_f32", {"sam": {"optimizer": {"sgd": {"learning_rate": 0.1}}, "adv_optimizer": {"chain": [
       {"normalize": {}}, {"sgd": {"learning_rate": 0.05}}]}}}, "f32", W, [NONE] + G, F32, ["normalize", "sam", "zeros"])
record("conditional_ademamix_huge_f32", {"conditionally_transform": {"inner": {"simplified_ademamix": {"learning_rate": 0.1}},
       "should_transform_fn": {"step_mod": [2, 0]}}}, "f32", W, HUGE, (2e-4, 1e-6), ["huge", "simplified_ademamix"])
record("adopt_huge_f32", {"adopt": {"learning_rate": 0.1, "use_clipping": False}}, "f32", W,
       [{"w": [1e34, 0.25, -1.0], "b": [[2.0, -3e35]]}] + G, F32, ["adopt", "huge"])
record("ademamix_mu_dtype_f32", {"ademamix": {"learning_rate": 0.1, "b3": 0.95, "mu_dtype": "bf16"}}, "f32", W, G + G + G,
       (0.005, 1e-5), ["ademamix", "dtype"])
record("mechanize_short_way_bf16", {"mechanize": {"base_optimizer": {"adam": {"learning_rate": 0.01}}}}, "bf16", W, G,
       (0.03, 0.0), ["half", "mechanize"])
record("apply_if_finite_multi_steps_f32", {"apply_if_finite": {"inner": {"multi_steps": {"inner": {"sgd": {"learning_rate": 0.1}},
       "every_k_schedule": 2}}, "max_consecutive_errors": 0}}, "f32", W, NAN, F32, ["apply_if_finite", "multi_steps", "nan"])
for name, after in (("trace", {"trace": {"decay": 0.5}}), ("decay", {"add_decayed_weights": {"weight_decay": -0.1}})):
    record(f"apply_if_finite_then_{name}_f32", {"chain": [{"apply_if_finite": {"inner": {"sgd": {"learning_rate": 0.1}},
           "max_consecutive_errors": 3}}, after]}, "f32", W, G[:1] + NAN, F32, ["apply_if_finite", "nan"])
    record(f"multi_steps_then_{name}_f32", {"chain": [{"multi_steps": {"inner": {"sgd": {"learning_rate": 0.1}},
           "every_k_schedule": 2}}, after]}, "f32", W, G, F32, ["multi_steps"])
record("plateau_bf16", {"reduce_on_plateau": {"factor": 0.5, "patience": 2}}, "bf16", W, G + G, (0.03, 1e-3),
       ["half", "reduce_on_plateau", "value"], values=[0.9, 0.899, 0.898, 0.897, 0.896, 0.895, 0.894, 0.893])
record("measured_huge_f32", {"chain": [{"monitor": {"measures": {"norm": {"measure": "global_norm"}}}}, {"sgd": {
       "learning_rate": 0.1}}]}, "f32", W, HUGE, F32, ["huge", "monitor"])
record("prodigy_frozen_f32", {"selective_transform": {"optimizer": {"prodigy": {"estim_lr0": 0.01}}, "freeze_mask": {"by_path": {
       "b": True, "w": True}}}}, "f32", W, G, F32, ["prodigy", "selective_transform"])
record("inject_sophia_f32", {"inject_hyperparams": {"inner": {"sophia": {"learning_rate": 0.1, "hessian_diagonal_fn": {"scale": {
       "step_size": 0.5}}}}, "static_args": ["update_interval"]}}, "f32", W, G, F32, ["inject_hyperparams", "sophia"])
# Before the variance is known, and with it.
for name, arguments, steps in (("", {}, 5), ("_nesterov", {"nesterov": True}, 5), ("_early", {"b2": 0.8}, 10)):
    record(f"radam{name}_infinite_f32", {"radam": {"learning_rate": 0.1, **arguments}}, "f32", W, (INFINITE + G)[:steps], F32,
           ["nan", "radam"])

for radius in ("l1_ball", "l1_sphere", "simplex"):
    project(f"{radius}_scale_0", f"projection_{radius}", W, {"scale": 0.0}, ["zeros"])
for radius in ("l2_ball", "l2_sphere"):
    project(f"{radius}_scale_0_of_origin", f"projection_{radius}", NONE, {"scale": 0.0}, ["zeros"])
project("l2_sphere_of_origin", "projection_l2_sphere", NONE, {"scale": 3.0}, ["zeros"])
project("l1_sphere_of_origin", "projection_l1_sphere", NONE, {"scale": 3.0}, ["zeros"])
project("l1_sphere_zero_inside", "projection_l1_sphere", {"w": [0.0, 0.5]}, {}, ["zeros"])
FAR = {"w": [1e25, -2e25, 0.5], "b": [[1e20, 2e25]]}
project("l2_sphere_far", "projection_l2_sphere", FAR, {}, ["huge"])
project("l2_ball_far", "projection_l2_ball", FAR, {"scale": 2.0}, ["huge"])
project("vector_far", "projection_vector", W, {"a": FAR}, ["huge"])
project("hyperplane_far", "projection_hyperplane", W, {"a": FAR, "b": 1.0}, ["huge"])
project("halfspace_far", "projection_halfspace", W, {"a": FAR, "b": 1.0}, ["huge"])
project("vector_zero", "projection_vector", W, {"a": NONE}, ["zeros"])
project("hyperplane_zero", "projection_hyperplane", W, {"a": NONE, "b": 1.0}, ["zeros"])
project("halfspace_zero", "projection_halfspace", W, {"a": NONE, "b": -1.0}, ["zeros"])
project("l1_ball_negative", "projection_l1_ball", W, {"scale": -1.0}, ["zeros"])
