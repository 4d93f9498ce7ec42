"""Plain PyTorch DDP on gloo, whatever launched it: RANK, WORLD_SIZE, LOCAL_RANK and MASTER_* are in the environment."""

import os
import pathlib

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
assert rank == int(os.environ["RANK"]) and world == int(os.environ["WORLD_SIZE"])
torch.manual_seed(0)
model = DistributedDataParallel(torch.nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
generator = torch.Generator().manual_seed(rank)
for _ in range(20):
    x = torch.randn(16, 8, generator=generator)
    loss = ((model(x) - x.sum(1, keepdim=True)) ** 2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
total = torch.tensor([float(rank)])
dist.all_reduce(total)
print(
    f"rank={rank} world={world} local={os.environ['LOCAL_RANK']} host={os.environ['SM_CURRENT_HOST']} "
    f"sum={int(total)} loss={loss.item():.4f};",
    flush=True,
)
if rank == 0:
    torch.save(model.module.state_dict(), pathlib.Path(os.environ["SM_MODEL_DIR"], "model.pt"))
dist.destroy_process_group()
