#!/usr/bin/env python3
"""Writes the files that tests/files/checkpoint/import.rs reads: a training run of PyTorch or Optax after some steps, and
where it ends.

make.py torch       with torch and safetensors
make.py optax       with optax, jax and safetensors

Each case is a file `{case}.safetensors`, as docs/checkpoints.md says how to write it, and `{case}.end.safetensors` with the
parameters after more steps. The gradient of step t, counted from 0, at a leaf p is

    p * (1 + t / 4) - target,   target = 0.5, -0.25, 0.5, -0.25, ... in row-major order

in the leaf's own type; all of these numbers are exact, so that the gradients differ only where the parameters do.
`versions-{torch,optax}.json` says what it was made with.
"""
import json
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
BEFORE, AFTER = 5, 7
WEIGHT = [[1.0, -2.0, 3.0], [0.5, 0.25, -0.125]]
BIAS = [0.75, -1.5]


def torch_cases():
    import safetensors
    import torch
    from safetensors.torch import save_file

    class Model(torch.nn.Module):
        def __init__(self, dtype, transposed):
            super().__init__()
            self.fc = torch.nn.Linear(3, 2, dtype=dtype)
            weight = torch.tensor(WEIGHT, dtype=dtype)
            # The same numbers in column-major order.
            self.fc.weight.data = weight.t().contiguous().t() if transposed else weight
            self.fc.bias.data = torch.tensor(BIAS, dtype=dtype)

    def gradients(model, t):
        for p in model.parameters():
            target = torch.tensor([0.5, -0.25] * ((p.numel() + 1) // 2), dtype=p.dtype)[: p.numel()].reshape(p.shape)
            p.grad = p.detach() * (1 + t / 4) - target

    def save(model, optimizer, path):
        tensors = {}
        for name, p in model.named_parameters():
            tensors[f"params/{name}"] = p.detach().contiguous()
            for key, value in optimizer.state[p].items():
                tensors[f"state/{name}/{key}"] = value.contiguous()
        save_file(tensors, path)

    optim, f32, f64 = torch.optim, torch.float32, torch.float64
    cases = {
        "torch_adam": (f32, False, lambda ps: optim.Adam(ps, lr=0.01, betas=(0.8, 0.95), eps=1e-6)),
        "torch_adamw": (f32, True, lambda ps: optim.AdamW(ps, lr=0.01, weight_decay=0.125)),
        "torch_adamw_f64": (f64, False, lambda ps: optim.AdamW(ps, lr=0.01, weight_decay=0.125)),
        "torch_momentum": (f32, False, lambda ps: optim.SGD(ps, lr=0.01, momentum=0.9)),
        "torch_nesterov": (f32, True, lambda ps: optim.SGD(ps, lr=0.01, momentum=0.9, nesterov=True)),
        "torch_sgd": (f32, False, lambda ps: optim.SGD(ps, lr=0.01)),
    }
    for case, (dtype, transposed, make) in cases.items():
        model = Model(dtype, transposed)
        optimizer = make(model.parameters())
        for t in range(BEFORE + AFTER):
            if t == BEFORE:
                save(model, optimizer, HERE / f"{case}.safetensors")
            gradients(model, t)
            optimizer.step()
        end = {f"params/{name}": p.detach().contiguous() for name, p in model.named_parameters()}
        save_file(end, HERE / f"{case}.end.safetensors")
    return {"torch": torch.__version__, "safetensors": safetensors.__version__}


def optax_cases():
    import jax

    jax.config.update("jax_enable_x64", True)
    import jax.numpy as jnp
    import optax
    import safetensors
    from optax.tree_utils import tree_get_all_with_path
    from safetensors.flax import save_file

    def gradients(params, t):
        def one(p):
            target = jnp.resize(jnp.array([0.5, -0.25], p.dtype), p.shape)
            return p * jnp.asarray(1 + t / 4, p.dtype) - target

        return jax.tree.map(one, params)

    def named(what, tree):
        leaves = jax.tree_util.tree_flatten_with_path(tree)[0]
        return {f"{what}/" + jax.tree_util.keystr(path, simple=True, separator="/"): leaf for path, leaf in leaves}

    def save(params, state, path):
        tensors = named("params", params)
        for field in ["mu", "nu", "trace"]:
            for _, tree in tree_get_all_with_path(state, field):
                tensors |= named(field, tree)
        for _, count in tree_get_all_with_path(state, "count"):
            assert tensors.setdefault("count", count) == count, "all count the same steps"
        save_file(tensors, path)

    f32, f64 = jnp.float32, jnp.float64
    schedule = optax.cosine_decay_schedule(0.01, 20)
    cases = {
        "optax_adam": (f32, optax.adam(0.01, b1=0.8, b2=0.95, eps=1e-6)),
        "optax_adamw": (f32, optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(schedule, weight_decay=0.125))),
        "optax_adamw_f64": (f64, optax.adamw(0.01, weight_decay=0.125)),
        "optax_momentum": (f32, optax.sgd(0.01, momentum=0.9)),
        "optax_nesterov": (f32, optax.sgd(schedule, momentum=0.9, nesterov=True)),
        "optax_bf16": (jnp.bfloat16, optax.adam(0.01, mu_dtype=f32)),
    }
    for case, (dtype, optimizer) in cases.items():
        params = {"fc": {"weight": jnp.array(WEIGHT, dtype), "bias": jnp.array(BIAS, dtype)}}
        state = optimizer.init(params)
        for t in range(BEFORE + AFTER):
            if t == BEFORE:
                save(params, state, HERE / f"{case}.safetensors")
            updates, state = optimizer.update(gradients(params, t), state, params)
            params = optax.apply_updates(params, updates)
        save_file(named("params", params), HERE / f"{case}.end.safetensors")
    return {"optax": optax.__version__, "jax": jax.__version__, "safetensors": safetensors.__version__}


if __name__ == "__main__":
    who = sys.argv[1]
    versions = {"torch": torch_cases, "optax": optax_cases}[who]()
    (HERE / f"versions-{who}.json").write_text(json.dumps(versions, indent=2) + "\n")
