"""Writes fresh cases of schedules, projections and functions, and of what Optax refuses; see `fresh.py`.

python tests/conformance/fresh_others.py OUT [--seed N] [--count N]
"""
import argparse
import copy
import json
import math
import pathlib

import jax
import jax.numpy as jnp
import numpy as np
import optax
from optax import projections

import fresh
import optax_cases as cases

KINDS = ("schedule", "projection", "function", "invalid")
PUBLIC = {kind: [case for case in fresh.PUBLIC if case["kind"] == kind] for kind in KINDS}
RELATIVE = {"f32": 5e-6, "f64": 1e-12, "bf16": 0.03, "f16": 0.004}


class Others(fresh.Fresh):
    def inside(self, tree, types, scale=1.0):
        return {p: jnp.asarray(self.normal(tree[p], scale), cases.DTYPES[types[p]]) for p in tree}

    def bound(self, dtype, size, wide=False):
        # Most schedules compute in f32, whatever the dtype.
        rtol = 2e-6 if wide and dtype == "f64" else RELATIVE[dtype]
        return {"rtol": rtol, "atol": float(f"{rtol / 4 * size:.1e}")}

    def jittered(self, node, key=None):
        """Numbers of a schedule a little other; steps stay whole."""
        r = self.random
        if isinstance(node, dict):
            return {k: self.jittered(v, k) for k, v in node.items()}
        if key == "boundaries_and_scales" and node:
            shift = r.randint(-1, 3)
            return [[max(1, b + shift), self.three_digits(x * r.uniform(0.3, 1.5))] for b, x in node]
        if key == "boundaries":
            shift = r.randint(-1, 3)
            return [max(1, b + shift) for b in node]
        if isinstance(node, list):
            return [self.jittered(x) for x in node]
        if isinstance(node, bool) or isinstance(node, str) or node is None:
            return node
        if key == "transition_begin":
            return node + r.randint(-3, 3)
        if key == "decay_steps":
            return node + r.randint(4, 8)
        if isinstance(node, int):
            return node if node <= 0 or key == "power" else max(1, node + r.randint(-2, 4))
        if key == "decay_rate":
            # Growth overflows one dtype before the other.
            return self.three_digits(min(node * r.uniform(0.3, 1.7), 1.0 if node < 1.0 else node))
        if key in ("pct_start", "pct_final"):
            return self.three_digits(node * r.uniform(0.7, 1.15))
        return self.three_digits(node * r.uniform(0.3, 1.7))

    def schedule(self, template):
        schedule = self.jittered(template["schedule"])
        dtype = self.random.choice(["f32", "f64"])
        jax.config.update("jax_enable_x64", dtype == "f64")
        built = cases.schedule(copy.deepcopy(schedule))
        steps = sorted({*range(8), *(self.random.randint(0, 70) for _ in range(12)), 1000, 100000})
        values = [np.asarray(built(jnp.asarray(count))) for count in steps]
        size = max((abs(float(x)) for x in values if np.isfinite(x)), default=0.0)
        return {"schedule": schedule, "dtype": dtype, "counts": steps, "expected": [cases.number(str(x)) for x in values],
                "tolerance": self.bound(dtype, size, wide=True)}

    def types(self, tree):
        dtype = self.random.choice(["f32", "f32", "f64"])
        jax.config.update("jax_enable_x64", dtype == "f64")
        return dtype, dict.fromkeys(tree, dtype)

    def projection(self, template):
        shapes = self.random.choice([t for t in fresh.TREES])
        dtype, types = self.types(shapes)
        tree = self.inside(shapes, types, self.random.choice([0.2, 1.0, 5.0]))
        args, written = {}, {}
        for name, given in template["args"].items():
            if isinstance(given, dict):
                arrays = self.inside(shapes, types)
                if name in ("lower", "upper"):
                    arrays = {p: (jnp.abs(x) if name == "upper" else -jnp.abs(x)) for p, x in arrays.items()}
                args[name], written[name] = cases.nest(arrays), {"tree": {p: cases.leaf(x) for p, x in sorted(arrays.items())}}
            else:
                args[name] = written[name] = self.three_digits(given * self.random.uniform(0.3, 2))
        expected = getattr(projections, template["projection"])(cases.nest(tree), **args)
        leaves = {p: np.asarray(x, np.float64) for p, x in cases.flat(expected).items()}
        size = max((np.abs(x).max(initial=0.0) for x in [*leaves.values(), *(np.asarray(t) for t in tree.values())]), default=0.0)
        return {"projection": template["projection"], "tree": {p: cases.leaf(x) for p, x in sorted(tree.items())},
                "args": written, "expected": cases.tree(expected), "tolerance": self.bound(dtype, float(size))}

    def function(self, template):
        name, args = template["function"], {}
        for key, given in template["args"].items():
            args[key] = given if key in ("ord", "squared", "uniform") else (
                self.random.randint(1, 20) if isinstance(given, int) and not isinstance(given, bool)
                else self.three_digits(given * self.random.uniform(0.3, 1.5)))
        if "step_size" in args:
            args["step_size"] = min(args["step_size"], 1.0)
        per_example = name.startswith("per_example")
        shapes = self.random.choice(fresh.TREES)
        if per_example:
            shapes = {p: (5, *shape) for p, shape in shapes.items()}
        dtype, types = self.types(shapes)
        if name == "apply_updates" and self.maybe(0.5):
            dtype = self.random.choice(["bf16", "f16"])
            types = dict.fromkeys(shapes, dtype)
        trees = {key: self.inside(shapes, types) for key in template["trees"]}
        nested = [cases.nest(tree) for tree in trees.values()]
        order = {"inf": math.inf}.get(args.get("ord"), args.get("ord"))
        value = lambda x: {"value": cases.number(x)}
        tree = lambda x: {"tree": cases.tree(x)}
        if per_example:
            flat, shape = jax.tree.flatten(nested[0])
            clipped, counts = getattr(optax, name)(flat, **args)
            expected = tree(shape.unflatten(clipped))
            expected["num_clipped"] = ({p: int(n) for p, n in sorted(cases.flat(shape.unflatten(counts)).items())}
                                       if isinstance(counts, list) else int(counts))
        else:
            expected = {
                "apply_updates": lambda: tree(optax.apply_updates(*nested)),
                "global_norm": lambda: value(optax.global_norm(*nested)),
                "tree_norm": lambda: value(optax.tree.norm(*nested, ord=order, squared=args.get("squared", False))),
                "tree_vdot": lambda: value(optax.tree.vdot(*nested)),
                "incremental_update": lambda: tree(optax.incremental_update(*nested, **args)),
                "periodic_update": lambda: tree(optax.periodic_update(*nested, jnp.asarray(args["steps"]), args["update_period"])),
            }[name]()
        size = expected["value"] if "value" in expected else max(
            (abs(x) for leaf in expected["tree"].values() for x in np.ravel(leaf["data"])), default=0.0)
        bound = self.bound(dtype, float(size))
        if name in ("tree_norm", "tree_vdot"):
            bound["atol"] = max(bound["atol"], bound["rtol"] / 2)
        return {"function": name, "trees": {key: {p: cases.leaf(x) for p, x in sorted(t.items())} for key, t in trees.items()},
                "args": args, "expected": expected, "tolerance": bound}

    def invalid(self, template):
        """A transformation with one argument that may be out of its range; a case if Optax says so."""
        jax.config.update("jax_enable_x64", False)
        config = template["config"]
        if self.maybe(0.8):
            config = copy.deepcopy(self.random.choice(fresh.TRANSFORMS)["config"])
            nodes = []
            def walk(node):
                if isinstance(node, dict):
                    nodes.extend((node, key) for key, x in node.items() if isinstance(x, (int, float, str)) or x is None)
                    [walk(x) for x in node.values()]
                elif isinstance(node, list):
                    [walk(x) for x in node]
            walk(config)
            node, key = self.random.choice([(n, k) for n, k in nodes if "dtype" not in k])
            node[key] = self.random.choice([-1, 0, -0.5, 1.5, "nope"])
        params = {"a": jnp.asarray([0.5, -1.0]), "b": jnp.asarray(2.0)}
        stage, state, transformation = "build", None, None
        try:
            transformation = cases.build(config)
            if isinstance(transformation, optax.MultiSteps):
                transformation = transformation.gradient_transformation()
            transformation = optax.with_extra_args_support(transformation)
            stage = "init"
            state = transformation.init(params)
            stage = "update"
            transformation.update(params, state, params, value=jnp.asarray(1.0))
        except ValueError as error:
            # Optax's own messages, not those of the array libraries.
            if any(word in str(error) for word in ("shape", "broadcast", "structure", "Dict key", "pytree", "callable")):
                raise
            return {"config": config, "params": {p: cases.leaf(x) for p, x in params.items()}, "stage": stage,
                    "error": "ValueError", "message": str(error), "tolerance": {"rtol": 0.0, "atol": 0.0}}
        raise LookupError("accepted")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=100, help="of each kind")
    given = parser.parse_args()
    for kind in KINDS:
        (given.out / kind).mkdir(parents=True, exist_ok=True)
        refused = {}
        for number in range(given.count):
            template = PUBLIC[kind][number % len(PUBLIC[kind])]
            name = f"fresh_{template['name']}_{given.seed}_{number}"
            try:
                case = getattr(Others(given.seed, name), kind)(template)
            except Exception as error:
                refused.setdefault(f"{type(error).__name__}: {str(error)[:100]}", []).append(template["name"])
                continue
            case = {"name": name, "kind": kind, "source": cases.SOURCE, "tags": []} | case
            (given.out / kind / f"{name}.json").write_text(json.dumps(case, allow_nan=False, separators=(",", ":")))
        for error, names in refused.items():
            print(f"{kind}: {len(names)} not written, such as {names[0]}: {error}")


if __name__ == "__main__":
    main()
