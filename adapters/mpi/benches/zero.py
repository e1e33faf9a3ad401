"""A step of PyTorch's ZeroRedundancyOptimizer over gloo, started by mpirun: prints the time of the fastest of some steps
in milliseconds.

    mpirun -n 4 python zero.py [ELEMENTS]
"""

import os
import sys
import time

import torch
import torch.distributed as dist
from torch.distributed.optim import ZeroRedundancyOptimizer

STEPS, BEFORE, TENSORS = 15, 3, 16
n = int(sys.argv[1]) if len(sys.argv) > 1 else 1 << 22
rank, size = (int(os.environ[f"OMPI_COMM_WORLD_{what}"]) for what in ("RANK", "SIZE"))
torch.set_num_threads(1)
os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=os.environ.get("MASTER_PORT", "29531"))
dist.init_process_group("gloo", rank=rank, world_size=size)

# Views of one tensor, so that one message carries all.
flat = torch.full((n,), 0.5)
params = [torch.ones(n // TENSORS, requires_grad=True) for _ in range(TENSORS)]
for param, grad in zip(params, flat.split(n // TENSORS)):
    param.grad = grad
optimizer = ZeroRedundancyOptimizer(params, torch.optim.AdamW, lr=1e-3, foreach=True)
took = []
for _ in range(BEFORE + STEPS):
    start = time.perf_counter()
    dist.all_reduce(flat)
    flat /= size
    optimizer.step()
    took.append(time.perf_counter() - start)
if rank == 0:
    print(f"{min(took[BEFORE:]) * 1e3:.3f} 0", flush=True)
dist.barrier()
# gloo's shutdown can abort the process after another has exited.
os._exit(0)
