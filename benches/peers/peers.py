"""Times a step of PyTorch's, Optax's, candle's and burn's optimizers in turns with a step of ours and with the limit.

    benches/peers/run [ROUNDS] > RECORD.csv

Prints CSV: a row for each peer, chain, tree and number of threads, with the medians over rounds of milliseconds a step
and of the ratio of a step to the limit just before it, of the peer and of gradchain beside it. For `adamw` and clipping
the limit moves the bytes that our chain must move; for `muon` it is the products of five iterations, by ndarray.
`chart.py` draws the record.
"""

import importlib.metadata
import os
import re
import subprocess
import sys
import time
from statistics import median

ROWS = [
    ("adamw", "1e7"),
    ("clip+adamw", "1e7"),
    ("adamw", "gpt2"),
    ("clip+adamw", "gpt2"),
    ("muon", "1024"),
]


def shapes(tree):
    if tree == "1e7":
        return [(10_000_000,)]
    if tree == "1024":
        return [(1024, 1024)]
    layer = [(768,)] * 4
    for rows, columns in [(768, 2304), (768, 768), (768, 3072), (3072, 768)]:
        layer += [(rows, columns), (columns,)]
    return [(50257, 768), (1024, 768), *layer * 12, (768,), (768,)]


class Program:
    """A benchmark of this repository that does one step, or one run of the limit, for each line it reads."""

    def __init__(self, package, *words):
        features = ["--features", "rayon"] if package == "gradchain" else []
        command = ["cargo", "bench", "--quiet", "-p", package, "--bench", "peers", *features, "--", *words]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout.readline().strip() == "ready"

    def ask(self, what):
        self.process.stdin.write(f"{what}\n")
        self.process.stdin.flush()
        return float(self.process.stdout.readline())

    def end(self):
        self.process.stdin.close()
        self.process.wait()


def timed(step):
    def run():
        start = time.perf_counter()
        step()
        return time.perf_counter() - start

    return run


def of_torch(chain, tree, threads):
    import torch

    torch.set_num_threads(threads)
    params = [torch.full(shape, 0.5) for shape in shapes(tree)]
    for param in params:
        param.grad = (torch.arange(param.numel()) % 1000 * 1e-3 - 0.5).reshape(param.shape)
    if chain == "muon":
        optimizer = torch.optim.Muon(params, lr=1e-3)
    else:
        optimizer = torch.optim.AdamW(params, lr=1e-3, weight_decay=1e-2, fused=True)

    def step():
        if chain.startswith("clip"):
            torch.nn.utils.clip_grad_norm_(params, 1.0)
        optimizer.step()

    return timed(step)


def of_optax(chain, tree, _):
    import jax
    import jax.numpy as jnp
    import optax

    if chain == "muon":
        optimizer = optax.contrib.muon(1e-3)
    else:
        optimizer = optax.adamw(1e-3, weight_decay=1e-2)
        if chain.startswith("clip"):
            optimizer = optax.chain(optax.clip_by_global_norm(1.0), optimizer)

    def gradient(shape):
        count = 1
        for side in shape:
            count *= side
        return (jnp.arange(count) % 1000 * 1e-3 - 0.5).reshape(shape).astype(jnp.float32)

    grads = [gradient(shape) for shape in shapes(tree)]
    params = [jnp.full(shape, 0.5, jnp.float32) for shape in shapes(tree)]
    state = optimizer.init(params)

    @jax.jit(donate_argnums=(0, 1))
    def jitted(params, state, grads):
        updates, state = optimizer.update(grads, state, params)
        return optax.apply_updates(params, updates), state

    def step():
        nonlocal params, state
        params, state = jax.block_until_ready(jitted(params, state, grads))

    return timed(step)


def of_candle(chain, tree, _):
    program = Program("gradchain-candle", chain, tree)
    return lambda: program.ask("step")


def of_burn(chain, tree, _):
    program = Program("gradchain-burn", chain, tree)
    return lambda: program.ask("step")


def measure(peer, chain, tree, threads, rounds):
    """Milliseconds of a peer's step and of ours, and the ratio of each to the limit just before it."""
    cores = sorted(os.sched_getaffinity(0))[:threads]
    os.sched_setaffinity(0, cores)
    theirs, ours = peer(chain, tree, threads), Program("gradchain", chain, tree, str(threads))
    for _ in range(2):
        theirs(), ours.ask("step"), ours.ask("limit")
    times, ratios = ([], []), ([], [])
    for _ in range(rounds):
        for i, step in enumerate((theirs, lambda: ours.ask("step"))):
            # Absorbs the previous measurement's effect on memory and caches.
            ours.ask("limit")
            limit = ours.ask("limit")
            time = step()
            times[i].append(1e3 * time)
            ratios[i].append(time / limit)
    ours.end()
    ms, ratio = [[median(of) for of in each] for each in (times, ratios)]
    return [ms[0], ratio[0], ms[1], ratio[1]]


def version(name):
    if name in ("torch", "optax"):
        return importlib.metadata.version(name)
    crate = {"candle": "candle-nn", "burn": "burn"}[name]
    return re.search(f'name = "{crate}"\nversion = "(.*)"', open("Cargo.lock").read())[1]


PEERS = {"torch": of_torch, "optax": of_optax, "candle": of_candle, "burn": of_burn}


def main():
    if len(sys.argv) > 2:
        # Libraries keep their threads.
        name, chain, tree, threads, rounds = sys.argv[1:]
        ms, ratio, our_ms, our_ratio = measure(PEERS[name], chain, tree, int(threads), int(rounds))
        print(f"{ms:.2f},{ratio:.2f},{our_ms:.2f},{our_ratio:.2f}")
        return
    rounds = sys.argv[1] if len(sys.argv) > 1 else "15"
    print("peer,version,chain,tree,threads,peer_ms,peer_ratio_to_limit,ours_ms,ours_ratio_to_limit", flush=True)
    for chain, tree in ROWS:
        for threads in (1, os.cpu_count()):
            for name in PEERS:
                if chain == "muon" and name in ("candle", "burn"):
                    continue
                eigen = f"--xla_cpu_multi_thread_eigen={str(threads > 1).lower()}"
                # Idle threads must not occupy a core.
                environment = {**os.environ, "XLA_FLAGS": eigen, "OMP_WAIT_POLICY": "PASSIVE"}
                environment["RAYON_NUM_THREADS"] = str(threads)
                command = [sys.executable, __file__, name, chain, tree, str(threads), rounds]
                done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
                found = done.stdout.split()[-1]
                print(f"{name},{version(name)},{chain},{tree},{threads},{found}", flush=True)


main()
