"""A small character model, trained with DDP as any script does: torchrun, plain Python, or regrow.

    torchrun --standalone --nproc_per_node=4 plain.py --steps 200

train.py beside it is the same script, made resilient: compare them.
"""

import argparse
import hashlib
import os
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

parser = argparse.ArgumentParser(description="Trains a small character model with DDP over gloo.")
parser.add_argument("--steps", type=int, default=400, help="train up to this step (default 400)")
parser.add_argument("--checkpoint-every", type=int, default=50, metavar="N", help="steps")
parser.add_argument("--checkpoints", type=Path, metavar="DIR", default=Path("checkpoints"))
parser.add_argument("--step-delay", type=float, default=0.0, metavar="S", help="sleep in each step")
options = parser.parse_args()

torch.set_num_threads(1)
rank = int(os.environ.get("RANK", 0))
text = Path("/usr/share/common-licenses/GPL-3").read_bytes()
alphabet = sorted(set(text))
numbers = torch.tensor([alphabet.index(byte) for byte in text])
CONTEXT, BATCH = 16, 32

torch.manual_seed(1)
net = nn.Sequential(
    nn.Embedding(len(alphabet), 16),
    nn.Flatten(),
    nn.Linear(CONTEXT * 16, 64),
    nn.BatchNorm1d(64),
    nn.ReLU(),
    nn.Dropout(0.05),
    nn.Linear(64, len(alphabet)),
)
optimizer = torch.optim.Adam(net.parameters(), lr=6e-3)
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=100, gamma=0.7)


def batch(n):
    draw = torch.Generator().manual_seed(n * 1000 + rank)
    starts = torch.randint(0, len(numbers) - CONTEXT, (BATCH,), generator=draw)
    return torch.stack([numbers[i : i + CONTEXT] for i in starts.tolist()]), numbers[starts + CONTEXT]


def save(n):
    """Complete as soon as it has its name. Rank 0 has the state of all."""
    place = options.checkpoints / f"step_{n}"
    draft = options.checkpoints / f"new_{n}_{os.getpid()}"
    draft.mkdir(parents=True)
    state = {"net": net.state_dict(), "optimizer": optimizer.state_dict()}
    torch.save({"n": n, "scheduler": scheduler.state_dict(), **state}, draft / "state.pt")
    if not place.exists():
        draft.rename(place)


def load(path):
    if not path:
        return 0
    state = torch.load(Path(path) / "state.pt", map_location="cpu")
    net.load_state_dict(state["net"])
    optimizer.load_state_dict(state["optimizer"])
    scheduler.load_state_dict(state["scheduler"])
    return state["n"]


def train_step(n):
    x, y = batch(n)
    loss = nn.functional.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    scheduler.step()
    time.sleep(options.step_delay)
    if rank == 0:
        print(f"step {n} loss {loss.item():.4f}", flush=True)
        if n % options.checkpoint_every == 0:
            save(n)


dist.init_process_group("gloo")
model = DistributedDataParallel(net, find_unused_parameters=True)
for n in range(load(os.environ.get("REGROW_RESUME_PATH")) + 1, options.steps + 1):
    train_step(n)

if rank == 0:
    digest = hashlib.sha256(b"".join(p.detach().numpy().tobytes() for p in net.parameters()))
    print(f"parameters sha256 {digest.hexdigest()}", flush=True)
