#!/usr/bin/env python3
"""Writes `muon.json`, which tests/behaviour/layouts.rs reads: what `torch.optim.Muon` makes of weights of zero, `[out,
in]`, in three steps with rate 1. Needs torch; the file says which it was.

PyTorch multiplies in `bf16`, two digits. Here its code is given `f64` in that place.
"""
import json
import random
from pathlib import Path

import torch

torch.bfloat16 = torch.float64

SHAPES = [[12, 4], [4, 12], [5, 5], [7, 6]]
STEPS = 3


def matrix(draw, shape):
    return [[draw.gauss(0.0, 1.0) for _ in range(shape[1])] for _ in range(shape[0])]


def run(shape, arguments):
    draw = random.Random(str(shape))
    gradients = [matrix(draw, shape) for _ in range(STEPS)]
    weight = torch.nn.Parameter(torch.zeros(shape, dtype=torch.float64))
    optimizer = torch.optim.Muon([weight], lr=1.0, weight_decay=0.0, **arguments)
    after = []
    for gradient in gradients:
        weight.grad = torch.tensor(gradient, dtype=torch.float64)
        optimizer.step()
        after.append(weight.detach().tolist())
    return {"shape": shape, "arguments": arguments, "gradients": gradients, "after": after}


def main():
    arguments = [{}, {"adjust_lr_fn": "match_rms_adamw"}, {"nesterov": False}]
    runs = [run(shape, given) for shape in SHAPES for given in arguments]
    to = Path(__file__).with_name("muon.json")
    lines = ",\n".join(json.dumps(run) for run in runs)
    to.write_text(f'{{\n"made_by": "torch {torch.__version__}",\n"runs": [\n{lines}\n]}}\n')


main()
