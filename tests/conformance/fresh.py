"""Writes fresh cases: the public ones with other numbers, trees, types and nestings, and what Optax does with them.

python tests/conformance/fresh.py OUT [--seed N] [--count N] [--only NAME,NAME] [--quick] [--again NAME ..]

A case starts from a public one, drawn so that all names come up alike. Its hyperparameters are drawn anew from the range that
the public cases give the argument, arguments that it leaves out may be given as another case gives them, the whole may be put
inside a wrapper, and tree, types, gradients and number of steps are new. What Optax refuses is not written. With `--quick`
the tolerance is the least there is, without a second run: what fails then is to be measured.
"""
import argparse
import copy
import gzip
import json
import math
import pathlib
import random
import zlib

import numpy as np

import optax_cases as cases

FOLDER = pathlib.Path(__file__).parent
PUBLIC = [json.loads(line) for line in gzip.open(FOLDER / "cases.jsonl.gz")]
TRANSFORMS = [case for case in PUBLIC if case["kind"] == "transform" and "per_example" not in case["tags"]]
SIGNATURES = json.loads((FOLDER / "signatures.json").read_text())["transforms"]
TREES = [
    {"b": (3,), "s": (), "w": (2, 3)},
    {"a": (5,), "b": (1,), "s": ()},
    {"layer1/b": (3,), "layer1/w": (4, 3), "layer2/b": (2,), "layer2/w": (3, 2)},
    {"conv/kernel": (2, 1, 2, 3), "dense/b": (2,), "dense/w": (3, 2), "empty": (0,), "one": (1,)},
    {"block/0/norm": (3,), "block/0/qkv": (3, 2, 2), "block/1/norm": (3,), "block/1/proj": (4, 2)},
    {"conv/bias": (3,), "conv/kernel": (2, 2, 1, 3), "dense/w": (3, 2), "empty": (0,), "one": (1,), "temp": ()},
    {"": (4,)},
    {"": ()},
    {"": (4, 3)},
    {"none": (0, 3), "one": (1, 1), "w": (3, 5)},
    {"x": (33,), "y": (3, 0)},
]
WRAPPERS = ["chain", "named_chain", "masked", "partition", "multi_steps", "multi_steps_skip", "inject_hyperparams",
            "apply_if_finite", "conditionally_transform", "conditionally_mask", "flatten", "selective_transform", "monitor"]
# Transformations that see a leaf's kind, or keep state beside `init`'s, stay at their public cases' places.
UNWRAPPED = {"lookahead", "sam", "schedule_free", "schedule_free_sgd", "schedule_free_adamw", "muon", "galore", "scale_by_muon",
             "scale_by_galore", "rprop", "scale_by_rprop", "apply_every", "mechanize", "freeze", "monitor", "snapshot", "reduce_on_plateau"}
CONTAINERS = {"chain", "named_chain", "partition", "multi_steps", "inject_hyperparams", "monitor", "masked", "sam",
              "apply_if_finite", "conditionally_mask", "conditionally_transform", "flatten", "lookahead", "freeze",
              "selective_transform", "mechanize", "schedule_free"}


def pools():
    """The values that the public cases give each argument of each transformation."""
    found = {}
    def walk(node):
        if isinstance(node, list):
            [walk(x) for x in node]
        elif isinstance(node, dict):
            for key, value in node.items():
                if key in SIGNATURES and isinstance(value, dict):
                    for argument, given in value.items():
                        found.setdefault((key, argument), []).append(given)
                walk(value)
    [walk(case["config"]) for case in TRANSFORMS]
    return found


POOLS = pools()


class Fresh:
    def __init__(self, seed, name):
        self.name = name
        self.random = random.Random(f"{seed} {name}")
        self.numbers = np.random.default_rng([seed, zlib.crc32(name.encode())])
        self.drawn = {}
        self.topics = set()

    def maybe(self, chance):
        return self.random.random() < chance

    def three_digits(self, x):
        return float(f"{x:.3g}")

    def value(self, transformation, argument, given):
        """Another value of an argument; the same for the same, such as a learning rate that is given twice."""
        key = json.dumps([argument, given])
        if key not in self.drawn:
            self.drawn[key] = self.another(transformation, argument, given)
        return copy.deepcopy(self.drawn[key])

    def another(self, transformation, argument, given):
        if isinstance(given, dict) and "schedule" in given:
            return {"schedule": self.schedule(given["schedule"])}
        pool = POOLS.get((transformation, argument), [given])
        if isinstance(given, bool) or given is None or isinstance(given, str):
            return given
        if isinstance(given, int):
            return self.random.choice([x for x in pool if isinstance(x, int) and not isinstance(x, bool)] or [given])
        if isinstance(given, float):
            return self.between([x for x in pool if isinstance(x, (int, float)) and not isinstance(x, bool)] or [given])
        if isinstance(given, list) and argument == "betas":
            return [self.three_digits(self.random.uniform(0.4, 0.95)), self.three_digits(self.random.uniform(0.8, 0.999))]
        if isinstance(given, list) and argument == "init_step":
            return [given[0], self.three_digits(given[1] * self.random.uniform(0.3, 1.5))]
        if isinstance(given, dict) and set(given) == {"power"}:
            return {"power": self.random.choice([0.25, 0.5, 1.0, 0.1])}
        return given

    def between(self, pool):
        low, high = min(pool), max(pool)
        if self.maybe(0.2):
            return self.random.choice(pool)
        if low > 0:
            return self.three_digits(math.exp(self.random.uniform(math.log(low), math.log(high))))
        return self.three_digits(self.random.uniform(low, high))

    def schedule(self, given):
        """A schedule of some kind, about as large as the one given."""
        (name, args), = given.items()
        if name == "constant" or "schedules" in args or "cosine_kwargs" in args:
            return given
        top = args.get("peak_value", args.get("init_value"))
        r, steps = self.random, lambda low, high: self.random.randint(low, high)
        about = lambda factor: self.three_digits(top * r.uniform(0.5 * factor, 1.5 * factor))
        name = r.choice([name, "linear", "cosine_decay", "exponential_decay", "polynomial", "piecewise_constant",
                         "piecewise_interpolate", "warmup_constant", "warmup_cosine_decay", "warmup_exponential_decay",
                         "join", "linear_onecycle", "cosine_onecycle"])
        scales = lambda: [[b, self.three_digits(r.uniform(0.1, 1.0))] for b in sorted(r.sample(range(1, 6), 2))]
        fresh = {
            "linear": lambda: {"init_value": about(1), "end_value": about(0.3), "transition_steps": steps(2, 6),
                               "transition_begin": steps(0, 2)},
            "polynomial": lambda: {"init_value": about(1), "end_value": about(0.3), "power": r.choice([1, 2, 3, 0.5]),
                                   "transition_steps": steps(2, 6)},
            "exponential_decay": lambda: {"init_value": about(1), "transition_steps": steps(2, 4),
                                          "decay_rate": self.three_digits(r.uniform(0.4, 0.9)), "staircase": self.maybe(0.5)},
            "cosine_decay": lambda: {"init_value": about(1), "decay_steps": steps(3, 6),
                                     "alpha": self.three_digits(r.uniform(0, 0.3))},
            "piecewise_constant": lambda: {"init_value": about(1), "boundaries_and_scales": scales()},
            "piecewise_interpolate": lambda: {"interpolate_type": r.choice(["linear", "cosine"]), "init_value": about(1),
                                              "boundaries_and_scales": scales()},
            "warmup_constant": lambda: {"init_value": about(0.2), "peak_value": about(1), "warmup_steps": steps(1, 4)},
            "warmup_cosine_decay": lambda: {"init_value": about(0.2), "peak_value": about(1), "warmup_steps": steps(1, 3),
                                            "decay_steps": steps(5, 8), "end_value": about(0.05)},
            "warmup_exponential_decay": lambda: {"init_value": about(0.2), "peak_value": about(1), "warmup_steps": steps(1, 3),
                                                 "transition_steps": 2,
                                                 "decay_rate": self.three_digits(r.uniform(0.4, 0.9))},
            "join": lambda: {"schedules": [{"linear": {"init_value": about(0.1), "end_value": about(1), "transition_steps": 3}},
                                           {"constant": {"value": about(0.7)}}], "boundaries": [steps(2, 4)]},
            "linear_onecycle": lambda: {"transition_steps": steps(6, 10), "peak_value": about(1)},
            "cosine_onecycle": lambda: {"transition_steps": steps(6, 10), "peak_value": about(1)},
        }
        return {name: fresh[name]()} if name in fresh else given

    def config(self, node):
        (name, args), = node.items()
        if name == "chain":
            return {name: [self.config(inner) for inner in args]}
        if name == "named_chain":
            return {name: [[label, self.config(inner)] for label, inner in args]}
        if name == "partition":
            transforms = {label: self.config(inner) for label, inner in args["transforms"].items()}
            return {name: {"transforms": transforms, "labels": self.by_path(lambda: self.random.choice(list(transforms)))}}
        if name == "monitor":
            return node
        fresh = {}
        for argument, given in args.items():
            if argument in cases.INNER and isinstance(given, dict):
                fresh[argument] = self.config(given)
            elif argument in cases.MASKS:
                fresh[argument] = self.mask(given)
            elif argument in ("weight_dimension_numbers", "muon_weight_dimension_numbers", "every_k_schedule",
                              "should_transform_fn", "should_skip_update_fn", "static_args"):
                fresh[argument] = given
            else:
                fresh[argument] = self.value(name, argument, given)
        for argument, default in SIGNATURES.get(name, {}).items():
            given = [x for x in POOLS.get((name, argument), []) if not isinstance(x, (dict, list))]
            # The decomposition determines a basis's orientation, so state kept through a change of it is arbitrary.
            if argument == "update_proj_gap":
                continue
            if argument not in fresh and given and argument not in cases.MASKS | cases.INNER and self.maybe(0.2):
                fresh[argument] = self.value(name, argument, self.random.choice(given))
            elif argument == "mu_dtype" and self.maybe(0.08):
                fresh[argument] = self.random.choice(["bf16", "f32", "f16"])
        return {name: fresh}

    def by_path(self, draw):
        return {path: draw() for path in self.shapes}

    def mask(self, given):
        if not isinstance(given, dict) or "min_ndim" in given:
            return given
        if self.shapes.keys() & given["by_path"].keys() == set():
            prefixes = {path.split("/")[0] for path in self.shapes if "/" in path}
            if prefixes and self.maybe(0.2):
                return {"by_path": {p: self.maybe(0.5) for p in {path.split("/")[0] for path in self.shapes}}}
        return {"by_path": self.by_path(lambda: self.maybe(0.6))}

    def wrap(self, config):
        (name, args), = config.items()
        wrapper = self.random.choice(WRAPPERS)
        r = self.random
        sgd = {"sgd": {"learning_rate": self.three_digits(r.uniform(0.01, 0.5))}}
        if wrapper == "inject_hyperparams":
            if name in CONTAINERS or name == "lbfgs" or not any(isinstance(x, float) for x in args.values()):
                return config
            static = [key for key in args if isinstance(args[key], int) and not isinstance(args[key], bool)]
            inner = {"inner": config}
            if static:
                inner["static_args"] = static
            return {wrapper: inner}
        return {
            "chain": lambda: {"chain": r.sample([config, {"clip_by_global_norm": {"max_norm": self.three_digits(r.uniform(0.5, 3))}},
                                                 {"scale": {"step_size": self.three_digits(r.uniform(-2, 2))}}], 3)},
            "named_chain": lambda: {"named_chain": [["a", {"trace": {"decay": self.three_digits(r.uniform(0.5, 0.95))}}], ["b", config]]},
            "masked": lambda: {"masked": {"inner": config, "mask": self.mask({"by_path": {}})}},
            "partition": lambda: {"partition": {"transforms": {"a": config, "b": sgd}, "labels": self.by_path(lambda: r.choice("ab"))}},
            "multi_steps": lambda: {"multi_steps": {"inner": config, "every_k_schedule": r.choice([1, 2, 3]),
                                                    **({"use_grad_mean": False} if self.maybe(0.3) else {})}},
            "multi_steps_skip": lambda: {"multi_steps": {"inner": config, "every_k_schedule": r.choice([1, 2]),
                                                         "should_skip_update_fn": "skip_not_finite"}},
            "apply_if_finite": lambda: {"apply_if_finite": {"inner": config, "max_consecutive_errors": r.choice([0, 1, 3])}},
            "conditionally_transform": lambda: {"conditionally_transform": {"inner": config, "should_transform_fn": self.condition()}},
            "conditionally_mask": lambda: {"conditionally_mask": {"inner": config, "should_transform_fn": self.condition()}},
            "flatten": lambda: {"flatten": {"inner": config}},
            "selective_transform": lambda: {"selective_transform": {"optimizer": config, "freeze_mask": self.mask({"by_path": {}})}},
            "monitor": lambda: {"chain": [{"monitor": {"measures": {"norm": {"measure": "global_norm"}}}}, config]},
        }[wrapper]()

    def condition(self):
        return self.random.choice([{"step_lt": 3}, {"step_ge": 2}, {"step_mod": [2, 1]}, {"step_mod": [3, 0]}])

    def inputs(self, template):
        tags, names = set(template["tags"]), cases.named(template["config"])
        public = {path: tuple(leaf["shape"]) for path, leaf in template["params"].items()}
        lookahead = "lookahead" in template["config"]
        if lookahead:
            public = {path[5:]: shape for path, shape in public.items() if path.startswith("fast/")}
        keep = not public or any("dimension_numbers" in name for name in names) or "galore" in " ".join(names)
        keep = keep or ("sm3" in " ".join(names) and self.maybe(0.7)) or self.maybe(0.3)
        self.shapes = public if keep else self.random.choice(TREES)
        config = self.config(template["config"])
        topics = tags & {"nan", "zeros", "huge", "tiny", "value"}
        if not topics and self.maybe(0.12):
            # Huge values, absent from public cases, would swamp the others.
            same = {tag for case in TRANSFORMS if case["config"].keys() == template["config"].keys() for tag in case["tags"]}
            topics = {self.random.choice(["zeros", "huge", "tiny"])} & (same | {"zeros"})
        if not names & UNWRAPPED and self.maybe(0.35):
            config = self.wrap(config)
            if cases.named(config) & {"apply_if_finite", "should_skip_update_fn"} and self.maybe(0.7):
                topics |= {"nan"}
        if "scale_by_distance_over_gradients" in names and () in self.shapes.values():
            raise ValueError("Optax gives arrays of one element for scalars")
        self.topics = topics
        dtypes = self.dtypes(topics)
        steps = len(template["steps"]) + self.random.choice([-2, -1, 0, 0, 1])
        params = {path: self.normal(shape, 1.0) for path, shape in self.shapes.items()}
        if params and self.maybe(0.08):
            path = self.random.choice(list(params))
            params[path] = np.zeros_like(params[path])
        grads, values = self.gradients(template, topics, max(steps, 2), params)
        grad_dtypes = None
        if topics == set() and "f64" not in dtypes.values() and self.maybe(0.03):
            grad_dtypes = {path: self.random.choice(["bf16", "f32"]) for path in dtypes}
        sets = {}
        if "inject_hyperparams" in names and any("set_hyperparams" in step for step in template["steps"]):
            sets = {n: step["set_hyperparams"] for n, step in enumerate(template["steps"][:len(grads)]) if "set_hyperparams" in step}
        elif "inject_hyperparams" in config and self.maybe(0.3):
            (_, args), = config["inject_hyperparams"]["inner"].items()
            free = [key for key, x in args.items() if isinstance(x, float)]
            free and sets.update({2: {key: self.three_digits(args[key] * 0.9) for key in self.random.sample(free, 1)}})
        slow = {path: x + 0.1 * self.normal(x.shape, 1.0) if self.maybe(0.3) else x for path, x in params.items()} if lookahead else None
        rounded = lambda leaves, types: {p: np.asarray(np.asarray(x).astype(cases.DTYPES[types[p]]), np.float64)
                                         for p, x in leaves.items()}
        return cases.Inputs(config, rounded(params, dtypes), dtypes,
                            [rounded(g, grad_dtypes or dtypes) for g in grads], grad_dtypes, values, sets,
                            slow and rounded(slow, dtypes))

    def dtypes(self, topics):
        kind = self.random.choices(["f32", "f64", "bf16", "f16", "mixed"], [45, 25, 10, 8, 12])[0]
        if topics & {"huge", "tiny"} and kind in ("bf16", "f16", "mixed"):
            kind = "f32"
        if kind != "mixed":
            return dict.fromkeys(self.shapes, kind)
        pair = self.random.choice([("f32", "bf16"), ("f32", "f64"), ("f32", "f16"), ("bf16", "f64")])
        return {path: self.random.choice(pair) for path in self.shapes}

    def normal(self, shape, scale):
        return np.vectorize(lambda x: float(f"{x:.4g}"), otypes=[float])(self.numbers.normal(0, scale, shape))

    def gradients(self, template, topics, steps, params):
        r = self.random
        names = cases.named(template["config"])
        values = None
        if "value" in topics or "lbfgs" in " ".join(names):
            # A bowl; gradients are taken on a separate path to its bottom.
            curve = {p: np.abs(self.normal(x.shape, 1.0)) + 0.2 for p, x in params.items()}
            centre = {p: self.normal(x.shape, 1.0) for p, x in params.items()}
            grads, values = [], []
            for step in range(steps):
                at = {p: centre[p] + (x - centre[p]) * 0.8**step * r.uniform(0.8, 1.2) for p, x in params.items()}
                grads.append({p: np.vectorize(lambda x: float(f"{x:.4g}"), otypes=[float])(curve[p] * (at[p] - centre[p])) for p in at})
                values.append(float(f"{sum(0.5 * (curve[p] * (at[p] - centre[p]) ** 2).sum() for p in at):.6g}"))
            if "reduce_on_plateau" in names:
                values = [float(f"{r.choice([1.0, 1.0, 0.9, 0.95, 1.2]) * (1 - 0.02 * n):.4g}") for n in range(steps)]
            if "nan" in topics:
                values[r.randrange(steps)] = r.choice([math.nan, math.inf])
            if "value" not in topics:
                values = None
            return grads, values
        scale = lambda: math.exp(r.uniform(math.log(0.3), math.log(3)))
        grads = [{p: self.normal(x.shape, scale()) for p, x in params.items()} for _ in range(steps)]
        dead = {p: self.numbers.random(x.shape) < 0.3 for p, x in params.items()}
        for n, step in enumerate(grads):
            for p, g in step.items():
                if "zeros" in topics:
                    step[p] = np.where(dead[p], 0.0, g) * (n != 0)
                if "huge" in topics:
                    step[p] = np.where(self.numbers.random(g.shape) < 0.4, g * r.choice([1e10, 1e20, 1e30]), g)
                if "tiny" in topics:
                    step[p] = g * 1e-30
        if "nan" in topics:
            for _ in range(r.randint(1, 3)):
                at = r.choice([p for p in params if params[p].size] or [None])
                step = r.randrange(steps)
                if at is not None:
                    bad = np.atleast_1d(grads[step][at].copy())
                    bad.flat[r.randrange(bad.size)] = r.choice([math.nan, math.inf, -math.inf])
                    grads[step][at] = bad.reshape(params[at].shape)
        if "value_lt" in names:
            values = [float(f"{r.random():.3g}") for _ in range(steps)]
        return grads, values


def templates():
    """The public cases by the name they are about."""
    by_name = {}
    for case in TRANSFORMS:
        (name, _), = case["config"].items()
        by_name.setdefault(name, []).append(case)
    return by_name


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--only", default="")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--again", nargs="*", help="the names of cases to write again")
    given = parser.parse_args()
    (given.out / "transform").mkdir(parents=True, exist_ok=True)
    by_name = templates()
    names = [name for name in given.only.split(",") if name] or sorted(by_name)
    wanted = given.again or [f"fresh_{names[n % len(names)]}_{given.seed}_{n}" for n in range(given.count)]
    refused = {}
    for wish in wanted:
        name, seed, _ = wish.removeprefix("fresh_").rsplit("_", 2)
        fresh = Fresh(int(seed), wish)
        template = fresh.random.choice(by_name[name])
        try:
            inputs = fresh.inputs(template)
            case = cases.case(fresh.name, inputs, fresh.topics | {name}, cases.least if given.quick else None)
        except Exception as error:
            refused.setdefault(name, []).append(f"{template['name']}: {type(error).__name__}: {str(error)[:120]}")
            continue
        text = json.dumps(case, allow_nan=False, separators=(",", ":"))
        (given.out / "transform" / f"{fresh.name}.json").write_text(text)
    for name, errors in refused.items():
        print(f"{name}: {len(errors)} refused, such as {errors[0]}")


if __name__ == "__main__":
    main()
