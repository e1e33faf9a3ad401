#!/usr/bin/env python3
"""Writes `runs.json`, which tests/behaviour/pytorch.rs reads: what PyTorch's optimizers, schedulers and averages give in
`f64`. Needs torch; the file says which it was.

The gradients are given and do not depend on the parameters: of both signs, from a millionth to ten, zeros among them,
and a last column that keeps its sign, so that what goes by signs is seen going on.
"""
import json
import random
from pathlib import Path

import torch
from torch import optim
from torch.optim import lr_scheduler
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

STEPS = 12
PARAMS = [[[1.0, -2.0, 3.0], [0.5, 0.25, -0.125]], [0.75, -1.5]]


def gradients():
    draw = random.Random(20261127)

    def number(column):
        size = 10.0 ** draw.uniform(-6.0, 1.0)
        sign = draw.choice([-1.0, 1.0, 1.0]) if column < 2 else -1.0
        return 0.0 if draw.random() < 0.08 else sign * size

    return [
        [[[number(column) for column in range(3)] for _ in range(2)], [number(column) for column in range(2)]]
        for _ in range(STEPS)
    ]


GRADIENTS = gradients()


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight, self.bias = (torch.nn.Parameter(torch.tensor(p, dtype=torch.float64)) for p in PARAMS)

    def lists(self):
        return [self.weight.detach().tolist(), self.bias.detach().tolist()]

    def take(self, gradients):
        for p, g in zip(self.parameters(), gradients):
            p.grad = torch.tensor(g, dtype=torch.float64)


OPTIMIZERS = """
SGD(ps, lr=0.1)
SGD(ps, lr=0.1, momentum=0.9)
SGD(ps, lr=0.1, momentum=0.9, nesterov=True)
SGD(ps, lr=0.1, momentum=0.9, dampening=0.25)
SGD(ps, lr=0.1, momentum=0.9, weight_decay=0.01)
SGD(ps, lr=0.1, momentum=0.9, maximize=True)
Adam(ps, lr=0.1)
Adam(ps, lr=0.1, betas=(0.8, 0.95), eps=1e-4)
Adam(ps, lr=0.1, weight_decay=0.01)
Adam(ps, lr=0.1, amsgrad=True, eps=1e-4)
AdamW(ps, lr=0.1)
AdamW(ps, lr=0.1, maximize=True)
RAdam(ps, lr=0.1, betas=(0.8, 0.9), eps=1e-4)
RAdam(ps, lr=0.1, betas=(0.9, 0.95), weight_decay=0.01, decoupled_weight_decay=True)
Adamax(ps, lr=0.1)
Adamax(ps, lr=0.1, weight_decay=0.01)
Adagrad(ps, lr=0.1, eps=1e-4)
Adagrad(ps, lr=0.1, lr_decay=0.1, initial_accumulator_value=0.1)
Adadelta(ps)
Adadelta(ps, lr=0.5, rho=0.8, weight_decay=0.01)
RMSprop(ps, lr=0.1, eps=1e-4)
RMSprop(ps, lr=0.1, alpha=0.9, momentum=0.9)
RMSprop(ps, lr=0.1, alpha=0.9, centered=True)
Rprop(ps, lr=0.1)
Rprop(ps, lr=0.1, etas=(0.4, 1.5), step_sizes=(0.01, 0.2))
ASGD(ps, lr=0.1, lambd=0.01, t0=3)
Adafactor(ps, lr=0.1)
Adafactor(ps, lr=0.5, beta2_decay=-0.7, d=1.5, weight_decay=0.01)
""".strip().splitlines()

# Over 40 steps of an optimizer with a rate of 0.5.
SCHEDULERS = """
StepLR(opt, step_size=7, gamma=0.5)
MultiStepLR(opt, milestones=[5, 11, 30], gamma=0.5)
ExponentialLR(opt, gamma=0.9)
ConstantLR(opt, factor=0.25, total_iters=6)
LinearLR(opt, start_factor=0.1, end_factor=0.8, total_iters=9)
PolynomialLR(opt, total_iters=25, power=2.0)
CosineAnnealingLR(opt, T_max=39, eta_min=0.05)
CosineAnnealingWarmRestarts(opt, T_0=5, T_mult=2, eta_min=0.05)
LambdaLR(opt, lambda t: 1 / (1 + t))
OneCycleLR(opt, max_lr=0.5, total_steps=40)
OneCycleLR(opt, max_lr=0.5, total_steps=40, anneal_strategy="linear", three_phase=True)
SequentialLR(opt, [LinearLR(opt, 0.1, 1.0, 5), CosineAnnealingLR(opt, 35)], milestones=[5])
ChainedScheduler([ConstantLR(opt, 0.5, 4), ExponentialLR(opt, 0.9)])
CyclicLR(opt, base_lr=0.1, max_lr=0.5, step_size_up=4, step_size_down=6)
""".strip().splitlines()


def names(**more):
    return vars(optim) | vars(lr_scheduler) | more


def trained(call):
    """The parameters after each step. ASGD's average is shown beside them."""
    model = Model()
    optimizer = eval(call, names(ps=model.parameters()))
    run = {"torch": call, "params": []}
    averages = []
    for gradient in GRADIENTS:
        model.take(gradient)
        optimizer.step()
        run["params"].append(model.lists())
        if "ax" in optimizer.state[model.weight]:
            averages.append([optimizer.state[p]["ax"].tolist() for p in model.parameters()])
    return run | ({"averages": averages} if averages else {})


def scheduled(call):
    model = Model()
    optimizer = optim.SGD(model.parameters(), lr=0.5)
    scheduler = eval(call, names(opt=optimizer))
    rates = []
    for _ in range(40):
        rates.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        if len(rates) < 40:
            scheduler.step()
    return {"torch": call, "rates": rates}


def plateaus(call):
    """The rate after each loss, of sixty that fall, with noise, to a floor."""
    draw = random.Random(7)
    losses = [0.5 + 4.0 * 0.8**t + draw.uniform(0.0, 0.2) for t in range(60)]
    optimizer = optim.SGD(Model().parameters(), lr=0.5)
    scheduler = eval(call, names(opt=optimizer))
    rates = []
    for loss in losses:
        scheduler.step(loss)
        rates.append(optimizer.param_groups[0]["lr"])
    return {"torch": call, "losses": losses, "rates": rates}


def clipped(call):
    """The gradients after the call."""
    model = Model()
    after = []
    for gradient in GRADIENTS:
        model.take(gradient)
        eval(call, vars(torch.nn.utils) | {"ps": list(model.parameters())})
        after.append([p.grad.tolist() for p in model.parameters()])
    return {"torch": call, "gradients": after}


def averaged(call):
    model = Model()
    optimizer = optim.SGD(model.parameters(), lr=0.1)
    average = eval(call, {"AveragedModel": AveragedModel, "get_ema_multi_avg_fn": get_ema_multi_avg_fn, "model": model})
    run = []
    for gradient in GRADIENTS:
        model.take(gradient)
        optimizer.step()
        average.update_parameters(model)
        run.append(average.module.lists())
    return {"torch": call, "averages": run}


def accumulated():
    """The mean of three gradients, clipped, in each step of AdamW."""
    model = Model()
    optimizer = optim.AdamW(model.parameters(), lr=0.1)
    run = []
    for i, gradient in enumerate(GRADIENTS):
        for p, g in zip(model.parameters(), gradient):
            g = torch.tensor(g, dtype=torch.float64) / 3
            p.grad = g if p.grad is None else p.grad + g
        if i % 3 == 2:
            torch.nn.utils.clip_grad_value_(model.parameters(), 0.01)
            optimizer.step()
            optimizer.zero_grad()
        run.append(model.lists())
    return {"torch": "three backward passes, clip_grad_value_(ps, 0.01), AdamW(ps, lr=0.1)", "params": run}


def main():
    runs = {
        "made_by": f"torch {torch.__version__}",
        "params": PARAMS,
        "gradients": GRADIENTS,
        "optimizers": [trained(call) for call in OPTIMIZERS] + [accumulated()],
        "others": [trained("NAdam(ps, lr=0.1)")],
        "schedulers": [scheduled(call) for call in SCHEDULERS],
        "plateaus": [
            plateaus("ReduceLROnPlateau(opt, factor=0.5, patience=3)"),
            plateaus("ReduceLROnPlateau(opt, factor=0.5, patience=2, threshold=0.05, cooldown=4)"),
            plateaus('ReduceLROnPlateau(opt, factor=0.5, patience=2, threshold=0.05, threshold_mode="abs")'),
        ],
        "clips": [clipped(call) for call in ("clip_grad_norm_(ps, 1.0)", "clip_grad_value_(ps, 0.5)")],
        "averages": [
            averaged("AveragedModel(model)"),
            averaged("AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.9))"),
        ],
    }
    lists = {key: value for key, value in runs.items() if key not in ("made_by", "params", "gradients")}
    heads = {key: value for key, value in runs.items() if key not in lists}
    lines = [f"{json.dumps(key)}: {json.dumps(value)}" for key, value in heads.items()]
    for key, value in lists.items():
        lines.append(f"{json.dumps(key)}: [\n" + ",\n".join(json.dumps(run) for run in value) + "\n]")
    Path(__file__).with_name("runs.json").write_text("{\n" + ",\n".join(lines) + "\n}\n")


main()
