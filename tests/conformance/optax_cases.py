"""Builds what a config describes with Optax, runs it, and measures how exactly that can be known.

The format is that of the public cases, see `README.md`.
"""
import dataclasses
import inspect
import json
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import optax
import optax.contrib
from optax.contrib import _galore, _muon

warnings.filterwarnings("ignore")
SOURCE = f"optax {optax.__version__}"
DTYPES = {"bf16": jnp.bfloat16, "f16": jnp.float16, "f32": jnp.float32, "f64": np.float64}
NAMES = {np.dtype(value): key for key, value in DTYPES.items()}
DTYPE_ARGUMENTS = {"mu_dtype", "accumulator_dtype", "dtype_momentum", "state_dtype", "param_dtype", "hyperparam_dtype"}
MASKS = {"mask", "weight_decay_mask", "trust_ratio_mask", "freeze_mask"}
INNER = {"inner", "base_optimizer", "fast_optimizer", "optimizer", "adv_optimizer", "hessian_diagonal_fn"}
TUPLES = {"betas", "init_step", "axis", "ns_coeffs"}


def number(x):
    x = float(x)
    return x if np.isfinite(x) else {"nan": "nan", "inf": "inf", "-inf": "-inf"}[str(x)]


def written(array):
    """The shortest decimals that read back to the same number in its type."""
    array = np.asarray(array)
    if array.dtype == np.float32:
        return [number(str(x)) for x in array.ravel()]
    return [number(x) for x in array.astype(np.float64).ravel()]


def leaf(array):
    data = written(array)
    return {"dtype": NAMES[np.asarray(array).dtype], "shape": list(np.shape(array)), "data": data if np.ndim(array) else data[0]}


def nest(leaves):
    """Nested maps from paths."""
    tree = {}
    for path, value in leaves.items():
        if path == "":
            return value
        *parents, last = path.split("/")
        inside = tree
        for parent in parents:
            inside = inside.setdefault(parent, {})
        inside[last] = value
    return tree


def flat(tree, path=""):
    """Paths from nested maps."""
    if not isinstance(tree, dict):
        return {path: tree}
    return {p: leaf for key in sorted(tree) for p, leaf in flat(tree[key], f"{path}/{key}" if path else key).items()}


def tree(arrays):
    return {path: leaf(array) for path, array in flat(arrays).items()}


def array(leaf):
    data = leaf["data"] if isinstance(leaf["data"], list) else [leaf["data"]]
    return np.array([float(x) for x in data], np.float64).reshape(leaf["shape"])


def find(name):
    for module in (optax, optax.contrib, optax.transforms):
        if hasattr(module, name):
            return getattr(module, name)
    raise KeyError(name)


def schedule(config):
    (name, args), = config.items()
    args = dict(args)
    if name == "join":
        return optax.join_schedules([schedule(s) for s in args["schedules"]], args["boundaries"])
    if name == "sgdr":
        return optax.sgdr_schedule(args["cosine_kwargs"])
    if args.get("boundaries_and_scales"):
        args["boundaries_and_scales"] = {int(boundary): scale for boundary, scale in args["boundaries_and_scales"]}
    return find(name if name == "exponential_decay" else f"{name}_schedule")(**args)


def mask(value):
    match value:
        case {"by_path": paths}:
            return nest(paths)
        case {"min_ndim": least}:
            return lambda tree: jax.tree.map(lambda leaf: np.ndim(leaf) >= least, tree)
        case bool():
            return lambda tree: jax.tree.map(lambda _: value, tree)
    return value


def condition(value):
    (name, x), = value.items()
    return {
        "step_lt": lambda step, **_: step < x,
        "step_ge": lambda step, **_: step >= x,
        "step_mod": lambda step, **_: step % x[0] == x[1],
        "value_lt": lambda step, value, **_: value < x,
    }[name]


def skip(value):
    if isinstance(value, dict):
        limit = value["skip_large_updates"]["max_squared_norm"]
        return lambda *args: optax.skip_large_updates(*args, max_squared_norm=limit)
    return value and getattr(optax, value)


def measure(value):
    return {"global_norm": optax.tree.norm, "tree_sum": optax.tree.sum}[value]


def argument(transformation, name, value):
    if isinstance(value, dict) and "schedule" in value:
        return schedule(value["schedule"])
    if name in DTYPE_ARGUMENTS:
        return value and jnp.dtype(DTYPES[value])
    if name in MASKS:
        return mask(value)
    if name in INNER and value is not None:
        return build(value)
    if name in TUPLES and isinstance(value, list):
        return tuple(tuple(x) if isinstance(x, list) else x for x in value)
    if name == "clip_value_fn":
        return lambda step: step ** value["power"]
    if name == "should_transform_fn":
        return condition(value)
    if name == "should_skip_update_fn":
        return skip(value)
    if name == "measure":
        return measure(value)
    if name in ("weight_dimension_numbers", "muon_weight_dimension_numbers") and value is not None:
        kind = _galore.GaLoreDimensionNumbers if "galore" in transformation else _muon.MuonDimensionNumbers
        axes = lambda axis: tuple(axis) if isinstance(axis, list) else axis
        return nest({path: dims and kind(**{key: axes(a) for key, a in dims.items()}) for path, dims in value["by_path"].items()})
    return value


def build(config):
    (name, args), = config.items()
    if name == "chain":
        return optax.chain(*map(build, args))
    if name == "named_chain":
        return optax.named_chain(*((name, build(inner)) for name, inner in args))
    if name == "partition":
        transforms = {label: build(inner) for label, inner in args["transforms"].items()}
        return optax.partition(transforms, nest(args["labels"]))
    if name == "monitor":
        entry = lambda value: measure(value["measure"]) if "measure" in value else build(value)
        return optax.monitor({name: entry(value) for name, value in args["measures"].items()})
    if name == "inject_hyperparams":
        (inner, inner_args), = args["inner"].items()
        inner_args = {key: argument(inner, key, value) for key, value in inner_args.items()}
        static = args.get("static_args", [])
        # Optax would call callables that are not schedules.
        static = [static] if isinstance(static, str) else list(static)
        static += [key for key, value in args["inner"][inner].items() if isinstance(value, dict) and "schedule" not in value]
        dtype = args.get("hyperparam_dtype")
        dtype = dtype and DTYPES[dtype]
        return optax.inject_hyperparams(find(inner), static_args=tuple(static), hyperparam_dtype=dtype)(**inner_args)
    args = {key: argument(name, key, value) for key, value in args.items()}
    if name == "multi_steps":
        every_k = args["every_k_schedule"]
        if callable(every_k):
            args["every_k_schedule"] = lambda step: jnp.asarray(jnp.round(every_k(step)), jnp.int32)
        return optax.MultiSteps(args.pop("inner"), **args)
    return find(name)(**args)


def named(config):
    """The names of transformations and arguments in a config."""
    if isinstance(config, dict):
        return set(config).union(*map(named, config.values()))
    if isinstance(config, list):
        return set().union(*map(named, config))
    return {config} if isinstance(config, str) else set()


def states(state, kind):
    """The parts of a state that are of a named tuple of this name."""
    is_kind = lambda node: type(node).__name__ == kind
    found = [node for node in jax.tree.leaves(state, is_leaf=is_kind) if is_kind(node)]
    for node in list(found):
        for inner in node:
            found += states(inner, kind)
    return found


def flags(config, state):
    names, found = named(config), {}
    def only(kind):
        some = states(state, kind)
        return some[0] if len(some) == 1 else None
    multi = only("MultiStepsState")
    if multi is not None:
        found |= {"mini_step": int(multi.mini_step), "gradient_step": int(multi.gradient_step)}
        # In steps that skip parts, counters do not show the outcome.
        if not names & {"conditionally_transform", "conditionally_mask", "partition", "masked"}:
            found["has_updated"] = bool(multi.mini_step == 0 and multi.gradient_step > 0)
        if multi.skip_state:
            found |= {key: value.item() for key, value in multi.skip_state.items()}
            found = {key: number(value) if isinstance(value, float) else value for key, value in found.items()}
    finite = only("ApplyIfFiniteState")
    if finite is not None:
        found |= {key: getattr(finite, key).item() for key in ("notfinite_count", "last_finite", "total_notfinite")}
    zeroed = only("ZeroNansState")
    if zeroed is not None and not names & {"masked", "partition", "selective_transform", "flatten"}:
        found["found_nan"] = {path: bool(value) for path, value in flat(zeroed.found_nan).items()}
    plateau = only("ReduceLROnPlateauState")
    if plateau is not None:
        found |= {"plateau_scale": number(plateau.scale), "plateau_count": int(plateau.plateau_count),
                  "cooldown_count": int(plateau.cooldown_count), "best_value": number(plateau.best_value)}
    for kind in ("ProdigyState", "DAdaptAdamWState"):
        estimate = only(kind)
        if estimate is not None:
            found["estim_lr"] = number(estimate.estim_lr)
    return found


def injected(state):
    found = states(state, "InjectHyperparamsState") + states(state, "InjectStatefulHyperparamsState")
    return found[0] if len(found) == 1 else None


def measurements(state):
    found = [part[0] for kind in ("SnapshotState", "MonitorState") for part in states(state, kind)]
    return {name: number(value) for name, value in found[0].items()} if len(found) == 1 else {}


def arrays(leaves, dtypes):
    """Nested arrays from paths to (wide) values."""
    return nest({path: jnp.asarray(value, DTYPES[dtypes[path]]) for path, value in leaves.items()})


@dataclasses.dataclass
class Inputs:
    """What a case is given; all values in f64."""
    config: dict
    params: dict
    dtypes: dict
    grads: list
    grad_dtypes: dict = None
    """Those of the gradients, where they are not the parameters'."""
    values: list = None
    sets: dict = dataclasses.field(default_factory=dict)
    """Hyperparameters to set, by step."""
    slow: dict = None
    """The slow parameters of `lookahead`."""


def run(inputs, wide=None):
    """The steps of a case; in another precision if one is given, parameters then rounded after every step."""
    config = inputs.config if wide is None else without_dtypes(inputs.config)
    dtypes = inputs.dtypes if wide is None else {path: wide for path in inputs.dtypes}
    grad_dtypes = dtypes if inputs.grad_dtypes is None or wide else inputs.grad_dtypes
    lookahead = inputs.slow is not None
    jax.config.update("jax_enable_x64", "f64" in dtypes.values())
    transformation = build(config)
    if isinstance(transformation, optax.MultiSteps):
        # Its `gradient_transformation` drops the extra arguments.
        transformation = optax.GradientTransformationExtraArgs(transformation.init, transformation.update)
    transformation = optax.with_extra_args_support(transformation)
    params = arrays(inputs.params, dtypes)
    if lookahead:
        params = optax.LookaheadParams(params, arrays(inputs.slow, dtypes))
    state, steps = transformation.init(params), []
    for number_of_step, leaves in enumerate(inputs.grads):
        step = {"grads": arrays(leaves, grad_dtypes)}
        extra = {}
        if inputs.values is not None:
            step["value"] = inputs.values[number_of_step]
            extra["value"] = jnp.asarray(step["value"])
        if number_of_step in inputs.sets:
            step["set_hyperparams"] = inputs.sets[number_of_step]
            for name, value in step["set_hyperparams"].items():
                hyperparams = injected(state).hyperparams
                hyperparams[name] = jnp.asarray(value, jnp.asarray(hyperparams[name]).dtype)
        # Otherwise every step of a conditional is compiled anew.
        with jax.disable_jit():
            updates, state = transformation.update(step["grads"], state, params, **extra)
        params = optax.apply_updates(params, updates)
        if wide and {"bf16", "f16"} & set(inputs.dtypes.values()):
            round = lambda tree: arrays({p: np.asarray(x).astype(DTYPES[inputs.dtypes[p]]) for p, x in flat(tree).items()}, dtypes)
            params = optax.LookaheadParams(*map(round, params)) if lookahead else round(params)
        if lookahead:
            both = lambda tree: {f"{which}/{path}": x for which in ("fast", "slow")
                                 for path, x in flat(getattr(tree, which)).items()}
            step |= {"expected_updates": both(updates), "expected_params": both(params)}
        else:
            step |= {"expected_updates": flat(updates), "expected_params": flat(params)}
        hyperparams = injected(state)
        if hyperparams is not None:
            # Optax calls it as a schedule.
            given = {key: x for key, x in hyperparams.hyperparams.items() if key != "clip_value_fn"}
            step["expected_hyperparams"] = {key: number(x) for key, x in given.items()}
        if found := flags(config, state):
            step["expected_flags"] = found
        if found := measurements(state):
            step["expected_measurements"] = found
        evaluate = next((name for name in config if name.startswith("schedule_free")), None)
        if evaluate:
            step["expected_eval_params"] = flat(optax.contrib.schedule_free_eval_params(state, params))
        steps.append(step)
    return steps


KEPT = ("expected_updates", "expected_params", "expected_eval_params")
LADDER = {"f32": (5e-6, 1e-5, 2e-5, 5e-5, 1e-4, 2e-4), "f64": (1e-12, 1e-11, 1e-10, 1e-9),
          "f16": (0.004, 0.01, 0.02, 0.04), "bf16": (0.03, 0.05, 0.08)}
IN_F32 = {"multi_steps", "scale_by_factored_rms", "adafactor", "schedule", "step_size_fn", "radam", "scale_by_radam",
          "scale_by_distance_over_gradients", "measure_with_ema", "reduce_on_plateau", "prodigy", "dadapt_adamw",
          "mechanize", "muon", "galore", "scale_by_galore", "madgrad", "scale_by_madgrad",
          "warmup_steps"}


def narrowest(inputs):
    types = set(inputs.dtypes.values()) | set((inputs.grad_dtypes or {}).values())
    return next(name for name in ("bf16", "f16", "f32", "f64", None) if name in types or name is None)


def ladder(inputs):
    """The relative tolerances that there are."""
    type = narrowest(inputs)
    if type in ("f32", "f64") and {"bf16", "f16"} & set(dtype_arguments(inputs.config)):
        return 0.01, 0.02, 0.05
    if type == "f64" and "f32" in dtype_arguments(inputs.config):
        return LADDER["f32"]
    if type == "f64" and named(inputs.config) & IN_F32:
        return 2e-6, 5e-6
    return LADDER[type or "f32"]


def size(steps):
    """The largest finite update."""
    updates = [np.asarray(x, np.float64).ravel() for s in steps for x in s["expected_updates"].values()]
    updates = np.abs(np.concatenate(updates or [np.zeros(1)]))
    return np.max(updates[np.isfinite(updates)], initial=0.0)


def extreme(inputs):
    """Whether squares of gradients overflow in one of the types and not in the other."""
    sizes = np.abs(np.concatenate([np.ravel(g) for step in inputs.grads for g in step.values()] or [np.zeros(1)]))
    sizes = sizes[np.isfinite(sizes) & (sizes > 0)]
    return sizes.size > 0 and (sizes.max() > 1e8 or sizes.max() < 1e-8)


def least(inputs, steps):
    """The least tolerance that a case can have."""
    rtol = ladder(inputs)[-1 if extreme(inputs) else 0]
    return {"rtol": rtol, "atol": float(f"{rtol / 10 * size(steps):.1e}")}


def tolerance(inputs, steps):
    """From a second run in another precision: a bound for what a sound implementation can be off by."""
    type = narrowest(inputs)
    if extreme(inputs):
        return least(inputs, steps)
    other = run(inputs, "f64" if type == "f32" else "f32")
    pairs = [(np.asarray(x, np.float64).ravel(), np.asarray(b[key][path], np.float64).ravel())
             for a, b in zip(steps, other) for key in KEPT for path, x in a.get(key, {}).items()]
    off = np.concatenate([np.abs(x - y)[np.isfinite(x) & np.isfinite(y)] for x, y in pairs] or [np.zeros(1)])
    worst = np.max(off, initial=0.0) * (2.0**-26 if ladder(inputs)[0] < 1e-9 else 1.0)
    bound, top = least(inputs, steps), size(steps)
    rtol = next((r for r in ladder(inputs) if r * top >= 2 * worst), ladder(inputs)[-1])
    return {"rtol": rtol, "atol": max(bound["atol"], float(f"{4 * worst:.1e}"))}


def without_dtypes(config):
    """State has the type of the parameters, or f32 where that is the default."""
    if isinstance(config, dict):
        return {key: without_dtypes(value) for key, value in config.items() if key not in DTYPE_ARGUMENTS}
    return list(map(without_dtypes, config)) if isinstance(config, list) else config


def dtype_arguments(config):
    if isinstance(config, dict):
        for key, value in config.items():
            if key in DTYPE_ARGUMENTS:
                yield value
            else:
                yield from dtype_arguments(value)
    elif isinstance(config, list):
        for value in config:
            yield from dtype_arguments(value)


def case(name, inputs, topics=(), measure=None):
    """A case, as it is written."""
    steps = run(inputs)
    leaves = {path: jnp.asarray(x, DTYPES[inputs.dtypes[path]]) for path, x in inputs.params.items()}
    if inputs.slow is not None:
        leaves = {f"fast/{p}": x for p, x in leaves.items()} | {
            f"slow/{p}": jnp.asarray(x, DTYPES[inputs.dtypes[p]]) for p, x in inputs.slow.items()}
    result = {
        "name": name, "kind": "transform", "source": SOURCE,
        "tags": sorted({f"dtype:{d}" for d in inputs.dtypes.values()} | set(topics)),
        "tolerance": (measure or tolerance)(inputs, steps),
        "config": inputs.config,
        "params": {path: leaf(x) for path, x in sorted(leaves.items())},
    }
    for step in steps:
        for key in ("grads", *KEPT):
            if key in step:
                step[key] = tree(step[key]) if key == "grads" else {p: leaf(x) for p, x in sorted(step[key].items())}
        if "value" in step:
            step["value"] = number(step["value"])
    return result | {"steps": steps}
