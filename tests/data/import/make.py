#!/usr/bin/env python3
"""Writes the files that tests/files/checkpoint/import.rs reads: a training run of PyTorch or Optax after some steps, and
where it ends.

make.py torch       with torch and safetensors
make.py optax       with optax, jax and safetensors

Each case is a file `{case}.safetensors`, as docs/importing.md says how to write it, and `{case}.end.safetensors` with the
parameters after more steps, and as `next/{name}` after one. The gradient of step t, counted from 0, at a leaf p is

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

    def gradients(model, t, absent=()):
        for name, p in model.named_parameters():
            target = torch.tensor([0.5, -0.25] * ((p.numel() + 1) // 2), dtype=p.dtype)[: p.numel()].reshape(p.shape)
            p.grad = None if name in absent else p.detach() * (1 + t / 4) - target

    def save(model, optimizers, path):
        tensors = {}
        for name, p in model.named_parameters():
            tensors[f"params/{name}"] = p.detach().contiguous()
            for optimizer in optimizers:
                tensors |= {f"state/{name}/{key}": x.contiguous() for key, x in optimizer.state.get(p, {}).items()}
        save_file(tensors, path)

    def save_state_dict(model, optimizers, path):
        tensors = {f"params/{name}": x.contiguous() for name, x in model.state_dict().items()}
        for number, state in optimizers[0].state_dict()["state"].items():
            tensors |= {f"state/{number}/{key}": x.contiguous() for key, x in state.items()}
        save_file(tensors, path)

    optim, f32, f64, bf16 = torch.optim, torch.float32, torch.float64, torch.bfloat16

    def groups(model, lr=0.01):
        return [
            {"params": [model.fc.weight], "weight_decay": 0.125, "lr": lr},
            {"params": [model.fc.bias], "weight_decay": 0.0, "lr": 2 * lr},
        ]

    def one(make):
        return lambda model: [make(list(model.parameters()))]

    def muon_and_adamw(model):
        muon = optim.Muon([model.fc.weight], lr=0.02, nesterov=False)
        return [muon, optim.AdamW([model.fc.bias], lr=0.01, weight_decay=0.125)]

    rmsprop = {"lr": 0.01, "alpha": 0.95, "eps": 1e-6}
    cases = {
        "torch_adam": (f32, False, one(lambda ps: optim.Adam(ps, lr=0.01, betas=(0.8, 0.95), eps=1e-6))),
        "torch_adamw": (f32, True, one(lambda ps: optim.AdamW(ps, lr=0.01, weight_decay=0.125))),
        "torch_adamw_f64": (f64, False, one(lambda ps: optim.AdamW(ps, lr=0.01, weight_decay=0.125))),
        "torch_momentum": (f32, False, one(lambda ps: optim.SGD(ps, lr=0.01, momentum=0.9))),
        "torch_nesterov": (f32, True, one(lambda ps: optim.SGD(ps, lr=0.01, momentum=0.9, nesterov=True))),
        "torch_sgd": (f32, False, one(lambda ps: optim.SGD(ps, lr=0.01))),
        "torch_amsgrad": (f32, False, one(lambda ps: optim.Adam(ps, lr=0.01, amsgrad=True))),
        "torch_rmsprop": (f32, False, one(lambda ps: optim.RMSprop(ps, **rmsprop))),
        "torch_rmsprop_centered": (f32, False, one(lambda ps: optim.RMSprop(ps, **rmsprop, centered=True))),
        "torch_rmsprop_momentum": (f32, False, one(lambda ps: optim.RMSprop(ps, **rmsprop, momentum=0.9))),
        "torch_adagrad": (f32, False, one(lambda ps: optim.Adagrad(ps, lr=0.1))),
        "torch_muon": (f32, False, muon_and_adamw),
        # Products in f32, so that more than the first digits are comparable.
        "torch_muon_f32": (f32, False, muon_and_adamw),
        "torch_groups": (f32, False, lambda model: [optim.AdamW(groups(model))]),
        "torch_groups_bf16": (bf16, False, lambda model: [optim.AdamW(groups(model))]),
        "torch_f16": (torch.float16, False, one(lambda ps: optim.AdamW(ps, lr=0.01, eps=1e-4))),
        # The bias has no gradient in the first steps, so its count is lower.
        "torch_later": (f32, False, one(lambda ps: optim.AdamW(ps, lr=0.01, weight_decay=0.125))),
        # State by number, and names as from `DistributedDataParallel`.
        "torch_state_dict": (f32, False, one(lambda ps: optim.AdamW(ps, lr=0.01, weight_decay=0.125))),
    }
    for case, (dtype, transposed, make) in cases.items():
        model = Model(dtype, transposed)
        optimizers = make(model)
        torch.bfloat16 = f32 if case == "torch_muon_f32" else bf16
        end = {}
        for t in range(BEFORE + AFTER):
            if t == BEFORE and case == "torch_state_dict":
                wrapped = torch.nn.Module()
                wrapped.module = model
                save_state_dict(wrapped, optimizers, HERE / f"{case}.safetensors")
            elif t == BEFORE:
                save(model, optimizers, HERE / f"{case}.safetensors")
            gradients(model, t, ["fc.bias"] if case == "torch_later" and t < 2 else [])
            for optimizer in optimizers:
                optimizer.step()
            if t == BEFORE:
                end |= {f"next/{name}": p.detach().clone().contiguous() for name, p in model.named_parameters()}
        end |= {f"params/{name}": p.detach().contiguous() for name, p in model.named_parameters()}
        save_file(end, HERE / f"{case}.end.safetensors")
    return {"torch": torch.__version__, "safetensors": safetensors.__version__}


def optax_cases():
    import jax
    import optax.contrib

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
        for field in ["mu", "nu", "nu_max", "trace", "sum_of_squares"]:
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
        "optax_bf16_moments": (jnp.bfloat16, optax.adam(0.01)),
        "optax_amsgrad": (f32, optax.amsgrad(0.01)),
        "optax_rmsprop": (f32, optax.rmsprop(0.01, decay=0.95)),
        "optax_rmsprop_momentum": (f32, optax.rmsprop(0.01, decay=0.95, centered=True, momentum=0.9)),
        "optax_adagrad": (f32, optax.adagrad(0.1)),
        "optax_muon": (f32, optax.contrib.muon(0.02, weight_decay=0.1)),
        "optax_partition": (
            f32,
            optax.partition(
                {"weights": optax.adamw(0.01, weight_decay=0.125), "biases": optax.sgd(schedule, momentum=0.9)},
                {"fc": {"weight": "weights", "bias": "biases"}},
            ),
        ),
        "optax_inject": (f32, optax.inject_hyperparams(optax.adamw)(learning_rate=0.01, weight_decay=0.125)),
        # The file is written within a window.
        "optax_multi_steps": (f32, optax.MultiSteps(optax.adamw(0.01, weight_decay=0.125), 2)),
    }
    for case, (dtype, optimizer) in cases.items():
        params = {"fc": {"weight": jnp.array(WEIGHT, dtype), "bias": jnp.array(BIAS, dtype)}}
        state, end = optimizer.init(params), {}
        windows = 2 if case == "optax_multi_steps" else 1
        for t in range(BEFORE + AFTER):
            if t == BEFORE:
                save(params, state, HERE / f"{case}.safetensors")
            for _ in range(windows):
                updates, state = optimizer.update(gradients(params, t), state, params)
                params = optax.apply_updates(params, updates)
            if t == BEFORE:
                end |= named("next", params)
        save_file(end | named("params", params), HERE / f"{case}.end.safetensors")
    return {"optax": optax.__version__, "jax": jax.__version__, "safetensors": safetensors.__version__}


if __name__ == "__main__":
    who = sys.argv[1]
    versions = {"torch": torch_cases, "optax": optax_cases}[who]()
    (HERE / f"versions-{who}.json").write_text(json.dumps(versions, indent=2) + "\n")
