#!/usr/bin/env python3
"""Loads state that does not fit, in PyTorch and Optax, and writes down what they say: `torch.json`, `optax.json`.

record.py torch       with torch
record.py optax       with optax, jax and flax

The same loads in gradchain, with the messages that they end in, are tests/files/checkpoint/bad_loads.rs. Each is recorded as what
the load says (null if it goes through), what the next step says, and what was seen afterwards.
"""
import io
import json
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent


def said(run):
    """What an action raised, or null."""
    try:
        run()
    except Exception as error:  # whatever it is, it is what is recorded
        return f"{type(error).__name__}: {str(error).strip().splitlines()[0]}"
    return None


def torch_loads():
    import torch

    def params(**leaves):
        return {name: torch.nn.Parameter(torch.tensor(values, dtype=dtype)) for name, (values, dtype) in leaves.items()}

    def step(tree, optimizer):
        for i, p in enumerate(tree.values()):
            p.grad = torch.full_like(p, 10.0**i)
        optimizer.step()

    def saved(tree, make):
        """The state after two steps, through a file."""
        optimizer = make(tree.values())
        step(tree, optimizer)
        step(tree, optimizer)
        file = io.BytesIO()
        torch.save(optimizer.state_dict(), file)
        file.seek(0)
        return torch.load(file)

    f32 = torch.float32
    adamw = lambda ps, **more: torch.optim.AdamW(ps, **({"lr": 0.1} | more))
    results = {}

    def record(name, state, tree, make, seen):
        optimizer = make(tree.values())
        load = said(lambda: optimizer.load_state_dict(state))
        now = seen(tree, optimizer) if load is None else None
        results[name] = {
            "load": load,
            "step": None if load else said(lambda: step(tree, optimizer)),
            "seen": now,
        }

    def state_of(tree, optimizer, name, key):
        return optimizer.state[tree[name]].get(key)

    two = lambda: params(a=([1.0, 2.0], f32), b=([3.0, 4.0], f32))
    shape = lambda name, key: lambda tree, o: f"{key} of {name} has shape {list(state_of(tree, o, name, key).shape)}"
    record("wrong_shape", saved(params(a=([1.0, 2.0, 3.0, 4.0], f32)), adamw), params(a=([1.0, 2.0, 3.0], f32)), adamw,
           shape("a", "exp_avg"))
    record("wrong_shape_that_broadcasts", saved(params(a=([1.0], f32)), adamw), params(a=([1.0, 2.0, 3.0], f32)), adamw,
           shape("a", "exp_avg"))
    swapped = {name: two()[name] for name in ["b", "a"]}
    record("swapped_order", saved(two(), adamw), swapped, adamw,
           lambda tree, o: f"exp_avg of a is {state_of(tree, o, 'a', 'exp_avg').tolist()}, that of b was saved")
    momentum = lambda ps: torch.optim.SGD(ps, lr=0.1, momentum=0.9)
    record("other_optimizer", saved(two(), adamw), two(), momentum,
           lambda tree, o: f"a has {sorted(o.state[tree['a']])}, the group of SGD has betas: {'betas' in o.param_groups[0]}")
    record("other_optimizer_of_the_same_fields", saved(two(), lambda ps: torch.optim.Adam(ps, lr=0.1)), two(),
           lambda ps: torch.optim.RAdam(ps, lr=0.1), lambda tree, o: f"a has {sorted(o.state[tree['a']])}")
    record("changed_argument", saved(two(), adamw), two(), lambda ps: adamw(ps, lr=0.2, betas=(0.8, 0.99)),
           lambda tree, o: f"lr {o.param_groups[0]['lr']}, betas {list(o.param_groups[0]['betas'])}: those of the file")
    narrow = params(a=([1.0, 2.0], torch.bfloat16), b=([3.0, 4.0], torch.bfloat16))
    record("downcast", saved(two(), adamw), narrow, adamw,
           lambda tree, o: f"exp_avg of a is {str(state_of(tree, o, 'a', 'exp_avg').dtype).removeprefix('torch.')}")
    double = params(a=([1.0, 2.0], torch.float64), b=([3.0, 4.0], torch.float64))
    record("downcast_from_f64", saved(double, adamw), two(), adamw,
           lambda tree, o: f"exp_avg of a is {str(state_of(tree, o, 'a', 'exp_avg').dtype).removeprefix('torch.')}")
    record("missing_leaf", saved(params(a=([1.0, 2.0], f32)), adamw), two(), adamw, lambda tree, o: None)
    partial = saved(two(), adamw)
    del partial["state"][1]
    tree = two()
    record("missing_state_of_a_leaf", partial, tree, adamw,
           lambda tree, o: f"b has {sorted(o.state[tree['b']])} until the next step makes it anew")
    return {"versions": {"torch": torch.__version__}, "results": results}


def optax_loads():
    import flax
    import flax.serialization
    import jax
    import jax.numpy as jnp
    import numpy as np
    import optax

    f32 = jnp.float32
    adamw = optax.adamw(0.1)
    two = {"a": jnp.array([1.0, 2.0], f32), "b": jnp.array([3.0, 4.0], f32)}

    def gradient(params):
        return {name: jnp.full_like(p, 10.0**i) for i, (name, p) in enumerate(sorted(params.items()))}

    def trained(params, tx):
        state = tx.init(params)
        for _ in range(2):
            updates, state = tx.update(gradient(params), state, params)
            params = optax.apply_updates(params, updates)
        return state

    def by_leaves(state):
        """The leaves in order, through a file of numpy's."""
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "state.npz")
            np.savez(path, *jax.tree.leaves(state))
            with np.load(path) as file:
                leaves = [file[name] for name in file.files]

        return lambda template: jax.tree.unflatten(jax.tree.structure(template), map(jnp.asarray, leaves))

    def by_flax(state):
        data = flax.serialization.to_bytes(state)
        return lambda template: flax.serialization.from_bytes(template, data)

    results = {}

    def record(name, old, old_tx, params, tx, seen):
        for way, saver in [("tree.unflatten", by_leaves), ("flax from_bytes", by_flax)]:
            restore = saver(trained(old, old_tx))
            loaded = []
            load = said(lambda: loaded.append(restore(tx.init(params))))
            after = None if load else said(lambda: tx.update(gradient(params), loaded[0], params))
            now = None if load else seen(loaded[0])
            results[f"{name}: {way}"] = {"load": load, "step": after, "seen": now}

    mu = lambda state: optax.tree_utils.tree_get(state, "mu")
    shape = lambda state: f"mu of a has shape {list(mu(state)['a'].shape)}"
    dtype = lambda state: f"mu of a is {mu(state)['a'].dtype}"
    record("wrong_shape", {"a": jnp.arange(1.0, 5.0)}, adamw, {"a": jnp.arange(1.0, 4.0)}, adamw, shape)
    record("wrong_shape_that_broadcasts", {"a": jnp.ones(1)}, adamw, {"a": jnp.arange(1.0, 4.0)}, adamw, shape)
    # The model now calls `c` the former `a`: sorted by name it comes after `b`.
    renamed = {"b": two["b"], "c": two["a"]}
    record("swapped_order", two, adamw, renamed, adamw,
           lambda state: f"mu of c is {np.asarray(mu(state)['c']).tolist()}, that of b was saved")
    record("other_optimizer", two, adamw, two, optax.sgd(0.1, momentum=0.9), lambda state: None)
    record("other_optimizer_of_the_same_fields", two, optax.adam(0.1), two, optax.adabelief(0.1),
           lambda state: f"the state is {type(state[0]).__name__}")
    record("changed_argument", two, adamw, two, optax.adamw(0.2, b1=0.8, b2=0.99),
           lambda state: "the state has no arguments: those of the new optimizer are used")
    injected = lambda rate: optax.inject_hyperparams(optax.adamw)(learning_rate=rate)
    record("changed_argument_that_is_injected", two, injected(0.1), two, injected(0.2),
           lambda state: f"learning_rate {float(state.hyperparams['learning_rate']):.1f}: that of the file")
    narrow = jax.tree.map(lambda p: p.astype(jnp.bfloat16), two)
    record("downcast", two, adamw, narrow, adamw, dtype)
    with jax.enable_x64(True):
        double = jax.tree.map(lambda p: jnp.asarray(np.asarray(p, np.float64)), two)
        state = trained(double, adamw)
        savers = [("tree.unflatten", by_leaves(state)), ("flax from_bytes", by_flax(state))]
    for way, restore in savers:
        loaded = []
        load = said(lambda: loaded.append(restore(adamw.init(two))))
        after = None if load else said(lambda: adamw.update(gradient(two), loaded[0], two))
        results[f"downcast_from_f64: {way}"] = {"load": load, "step": after, "seen": None if load else dtype(loaded[0])}
    record("missing_leaf", {"a": two["a"]}, adamw, two, adamw, lambda state: None)
    versions = {"optax": optax.__version__, "jax": jax.__version__, "flax": flax.__version__}
    return {"versions": versions, "results": results}


if __name__ == "__main__":
    who = sys.argv[1]
    done = {"torch": torch_loads, "optax": optax_loads}[who]()
    (HERE / f"{who}.json").write_text(json.dumps(done, indent=2) + "\n")
