"""How long PyTorch's AdamW takes on an NVIDIA device, for the leaves of the example `steps`, and how fast memory is copied.

Needs a PyTorch that knows the device. Times are taken as in the example: medians of ten steps one after another, after
which the device is waited for. The bytes of a step are those that it has to move, not those that PyTorch moves.
"""

import statistics
import time

import torch

ROUNDS, STEPS = 12, 10


def gpt2():
    sizes = [50257 * 768, 1024 * 768]
    for _ in range(12):
        sizes += [768 * 2304, 2304, 768 * 768, 768, 768 * 3072, 3072, 3072 * 768, 768, 768, 768, 768, 768]
    return sizes + [768, 768]


def timed(step):
    times = []
    for _ in range(ROUNDS):
        torch.cuda.synchronize()
        begin = time.perf_counter()
        for _ in range(STEPS):
            step()
        torch.cuda.synchronize()
        times.append((time.perf_counter() - begin) / STEPS)
    return statistics.median(times[2:])


def row(what, leaves, elements, seconds, size):
    print(f"| {elements} | {leaves} | {what} | {seconds * 1e6:.0f} | {size * elements / seconds / 1e9:.0f} |")


def main():
    print(f"PyTorch {torch.__version__} on {torch.cuda.get_device_name(0)}\n")
    print("| parameters | leaves | what | µs a step | GB/s |\n|---|---|---|---|---|")
    source = torch.ones(100_000_000, device="cuda")
    copy = torch.empty_like(source)
    row("a copy", 1, source.numel(), timed(lambda: copy.copy_(source)), 8)
    del source, copy
    for sizes in ([10**6], [10**7], [10**8], gpt2()):
        params = [torch.nn.Parameter(torch.ones(n, device="cuda")) for n in sizes]
        for param in params:
            param.grad = torch.full_like(param, 0.01)
        for way in ("fused", "foreach"):
            optimizer = torch.optim.AdamW(params, lr=1e-3, **{way: True})

            def clipped():
                torch.nn.utils.clip_grad_norm_(params, 1.0)
                optimizer.step()

            row(f"AdamW, {way}", len(sizes), sum(sizes), timed(optimizer.step), 28)
            row(f"clip_grad_norm_, AdamW, {way}", len(sizes), sum(sizes), timed(clipped), 32)
        del params, optimizer


main()
