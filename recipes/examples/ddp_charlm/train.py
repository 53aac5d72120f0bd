#!/usr/bin/python3
"""A small character model, trained with PyTorch DDP over gloo. Nothing in here knows who starts it.

    python3 train.py --steps 200                                      one process
    torchrun --standalone --nproc_per_node=4 train.py --steps 200     four, on one machine
    regrow run recipe.yaml                                            four, through faults

It learns to write like a licence file that every Debian system has. What makes it a good subject
for kill -9 is that a run with kills ends with the same parameters, bit for bit, as a run without:

- What is random in a step (its batch, its dropout) is drawn from a stream seeded with (seed, step,
  rank), so a step that is done again is done the same way.
- A checkpoint is a directory step_N with one shard per rank. Each shard is written beside its
  place, fsynced and renamed; rank 0 writes the marker COMPLETE, which lists every shard with its
  size, after all shards are safe. A directory without it, or whose sizes differ, does not count.
  So there is no instant at which a kill can leave something that looks whole and is not, and no
  signal handler is needed: SIGTERM ends a rank at once, even one that waits in a collective for a
  peer that is gone.
- DDP is told find_unused_parameters=True. Otherwise it rearranges its buckets after the first
  step, and a resumed run would add up gradients in another order than one that was never
  interrupted.

It resumes from $REGROW_RESUME_PATH if that is set, else from the newest complete checkpoint in
$REGROW_CHECKPOINT_DIR or --checkpoint-dir.
"""

import argparse
import gc
import hashlib
import io
import json
import os
import re
import shutil
import sys
import time
from datetime import timedelta
from pathlib import Path


def make_phase_log(directory):
    """For tools/bench: appends {"phase", "t", ...} lines to a file of this rank."""
    if not directory:
        return lambda phase, **facts: None
    rank = int(os.environ.get("RANK", "0"))
    log = open(Path(directory) / f"phases.rank{rank}", "a", buffering=1)

    def note(phase, **facts):
        facts.update(phase=phase, t=time.time(), rank=rank, pid=os.getpid())
        log.write(json.dumps(facts) + "\n")

    return note


phase = make_phase_log(os.environ.get("BENCH_EVENTS"))
phase("script")

# DDP warns at every start that find_unused_parameters costs time; here it is meant.
os.environ.setdefault("GLOG_minloglevel", "2")
os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
import torch  # noqa: E402  (the import is most of the start-up time, so it is measured as a phase)
import torch.distributed as dist  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn.parallel import DistributedDataParallel  # noqa: E402

phase("imported")

CONTEXT = 16  # characters that the model sees
BATCH = 32  # examples per rank and step
KEEP = 3  # complete checkpoints
MARKER = "COMPLETE"


# --- the model and its data ---------------------------------------------------------------------


class CharModel(nn.Module):
    """Guesses the next character from the CONTEXT characters before it."""

    def __init__(self, characters, width=64):
        super().__init__()
        self.embed = nn.Embedding(characters, 16)
        self.layers = nn.Sequential(
            nn.Linear(CONTEXT * 16, width),
            nn.ReLU(),
            nn.Dropout(0.05),
            nn.Linear(width, width),
            nn.ReLU(),
            nn.Linear(width, characters),
        )

    def forward(self, x):
        return self.layers(self.embed(x).flatten(1))


class Text:
    """The characters of a file as a tensor of small numbers."""

    def __init__(self, path):
        raw = Path(path).read_bytes()
        self.alphabet = sorted(set(raw))
        number = {byte: i for i, byte in enumerate(self.alphabet)}
        self.numbers = torch.tensor([number[byte] for byte in raw])

    def batch(self):
        """Draws from torch's random stream: what comes out depends on the seed set before."""
        starts = torch.randint(0, len(self.numbers) - CONTEXT, (BATCH,))
        x = torch.stack([self.numbers[i : i + CONTEXT] for i in starts.tolist()])
        return x, self.numbers[starts + CONTEXT]

    def to_string(self, numbers):
        return bytes(self.alphabet[i] for i in numbers).decode("utf-8", "replace")


def seed_for(*parts):
    """One number out of several, spread so that (1, 12) and (11, 2) do not meet."""
    text = "/".join(str(part) for part in parts).encode()
    return int.from_bytes(hashlib.sha256(text).digest()[:8], "big") >> 1


def write_sample(model, text, seed, length=72):
    """What the model has learned, for a person to see."""
    model.eval()
    torch.manual_seed(seed_for(seed, "sample"))
    window = text.numbers[len(text.numbers) // 2 :][:CONTEXT]
    written = []
    with torch.no_grad():
        for _ in range(length):
            odds = torch.softmax(model(window[None])[0] / 0.6, 0)
            written.append(int(torch.multinomial(odds, 1)))
            window = torch.cat([window[1:], torch.tensor(written[-1:])])
    return " ".join(text.to_string(written).split())


def parameters_digest(model):
    digest = hashlib.sha256()
    for name, value in model.state_dict().items():
        digest.update(name.encode())
        digest.update(value.numpy().tobytes())
    return digest.hexdigest()


# --- checkpoints --------------------------------------------------------------------------------


def fsync_directory(path):
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def write_durably(path, data):
    """The file is there whole, and survives a power cut, or it is not there at all."""
    hidden = path.with_name(f".{path.name}.tmp")
    with open(hidden, "wb") as out:
        out.write(data)
        out.flush()
        os.fsync(out.fileno())
    os.replace(hidden, path)
    fsync_directory(path.parent)


class Checkpoints:
    """The directories step_N under one directory that all ranks see."""

    def __init__(self, directory, rank, world_size):
        self.directory = Path(directory)
        self.rank = rank
        self.world_size = world_size

    def save(self, step, shard):
        """Every rank calls this at the same step. Doing a step again writes the same bytes again,
        so a checkpoint that is complete stays complete while it is rewritten."""
        path = self.directory / f"step_{step}"
        path.mkdir(parents=True, exist_ok=True)
        fsync_directory(self.directory)
        buffer = io.BytesIO()
        torch.save(shard, buffer)
        write_durably(path / f"rank_{self.rank}.pt", buffer.getvalue())
        dist.barrier()  # all shards are safe
        if self.rank == 0:
            names = [f"rank_{r}.pt" for r in range(self.world_size)]
            lines = [f"{(path / name).stat().st_size} {name}\n" for name in names]
            write_durably(path / MARKER, "".join(lines).encode())
            self.prune()

    def complete_steps(self):
        """Steps with a complete checkpoint, newest first. Content counts, not names or times."""
        found = []
        for path in self.directory.glob("step_*"):
            match = re.fullmatch(r"step_([0-9]+)", path.name)
            if match and self.is_complete(path):
                found.append(int(match[1]))
        return sorted(found, reverse=True)

    def is_complete(self, path):
        try:
            sizes = dict(
                reversed(line.split(" ", 1)) for line in (path / MARKER).read_text().splitlines()
            )
            names = {f"rank_{r}.pt" for r in range(self.world_size)}
            return set(sizes) == names and all(
                (path / name).stat().st_size == int(size) for name, size in sizes.items()
            )
        except (OSError, ValueError):
            return False

    def prune(self):
        """Keeps the newest KEEP complete ones; removes only what is older than those."""
        kept = self.complete_steps()[:KEEP]
        if len(kept) < KEEP:
            return
        for path in self.directory.glob("step_*"):
            match = re.fullmatch(r"step_([0-9]+)", path.name)
            if match and int(match[1]) < kept[-1]:
                (path / MARKER).unlink(missing_ok=True)  # first: half removed is not complete
                shutil.rmtree(path, ignore_errors=True)

    def choose(self):
        """Where to resume: a path, or None for the beginning. All ranks get the same answer."""
        if os.environ.get("REGROW_RESUME_PATH"):
            return Path(os.environ["REGROW_RESUME_PATH"])
        newest = self.complete_steps()[:1] if self.rank == 0 else []
        step = torch.tensor(newest or [-1])
        dist.broadcast(step, 0)
        return self.directory / f"step_{int(step)}" if int(step) >= 0 else None


# --- training -----------------------------------------------------------------------------------


class Training:
    """Model, optimizer and position of one rank."""

    def __init__(self, options, rank, world_size):
        self.options = options
        self.rank = rank
        self.world_size = world_size
        self.text = Text(options.text)
        torch.manual_seed(seed_for(options.seed, "model"))
        self.model = CharModel(len(self.text.alphabet))
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=6e-3)
        self.step = 0
        self.batches = hashlib.sha256(
            b""
        ).hexdigest()  # chained over every batch this rank has seen

    def load(self, path):
        mine = torch.load(path / f"rank_{self.rank}.pt", map_location="cpu")
        theirs = torch.load(path / "rank_0.pt", map_location="cpu") if self.rank else mine
        for key, ours in (("seed", self.options.seed), ("world_size", self.world_size)):
            if mine[key] != ours:
                sys.exit(
                    f"{path} was written with {key} {mine[key]}, this run has {ours}: "
                    "give the same, or another --checkpoint-dir"
                )
        self.model.load_state_dict(theirs["model"])
        self.optimizer.load_state_dict(theirs["optimizer"])
        self.step = mine["step"]
        self.batches = mine["batches"]
        torch.set_rng_state(mine["random_state"])

    def shard(self):
        """What this rank has to remember: rank 0 the model for all, each rank what is its own."""
        shard = {
            "step": self.step,
            "seed": self.options.seed,
            "world_size": self.world_size,
            "batches": self.batches,
            "random_state": torch.get_rng_state(),
        }
        if self.rank == 0:
            shard["model"] = self.model.state_dict()
            shard["optimizer"] = self.optimizer.state_dict()
        return shard

    def train_step(self, ddp):
        """One step. Returns this rank's loss."""
        torch.manual_seed(seed_for(self.options.seed, self.step, self.rank))
        x, y = self.text.batch()
        loss = nn.functional.cross_entropy(ddp(x), y)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.step += 1
        seen = bytes.fromhex(self.batches) + x.numpy().tobytes() + y.numpy().tobytes()
        self.batches = hashlib.sha256(seen).hexdigest()
        return loss.item()

    def write_result(self):
        """Rank 0 says how it ended; all ranks call this."""
        chains = [None] * self.world_size
        dist.all_gather_object(chains, self.batches)
        if self.rank != 0:
            return
        digest = parameters_digest(self.model)
        sample = write_sample(self.model, self.text, self.options.seed)
        print(f"parameters sha256 {digest}", flush=True)
        print(f"sample: {sample}", flush=True)
        if self.options.result:
            facts = {
                "steps": self.step,
                "parameters_sha256": digest,
                "batches_sha256": hashlib.sha256("".join(chains).encode()).hexdigest(),
                "sample": sample,
            }
            path = Path(self.options.result).absolute()
            path.parent.mkdir(parents=True, exist_ok=True)
            write_durably(path, (json.dumps(facts, indent=2) + "\n").encode())


def join_group():
    """Meets the other ranks as torchrun's variables say; without them, trains alone."""
    if "RANK" not in os.environ:
        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    else:
        if os.environ.get("MASTER_ADDR", "").startswith(("127.", "localhost")):
            # Everybody is on this machine, so its name need not resolve to an address.
            os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
        # Debian 13's PyTorch asks for a libuv that it was built without.
        os.environ.setdefault("USE_LIBUV", "0")
        dist.init_process_group("gloo", timeout=timedelta(minutes=5))
    return dist.get_rank(), dist.get_world_size()


def run(options):
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    rank, world_size = join_group()
    phase("joined")

    training = Training(options, rank, world_size)
    checkpoints = Checkpoints(options.checkpoint_dir, rank, world_size)
    start = checkpoints.choose()
    if start is not None:
        training.load(start)
        print(f"resumed from {start}", flush=True)
    ddp = DistributedDataParallel(training.model, find_unused_parameters=True)
    phase("loaded", step=training.step)

    while training.step < options.steps:
        if training.step == options.bug_at_step and rank == options.bug_rank:
            raise ValueError(f"cannot digest the batch of step {training.step}")
        loss = training.train_step(ddp)
        print(f"step {training.step} loss {loss:.4f}", flush=True)
        phase("step", step=training.step)
        if options.step_delay:
            time.sleep(options.step_delay)
        if training.step % options.checkpoint_every == 0 or training.step == options.steps:
            checkpoints.save(training.step, training.shard())

    training.write_result()
    dist.barrier()  # nobody leaves before the result is safe
    # The model goes first. Were it the last to hold the group, PyTorch 1.13 could wait, with the
    # interpreter's lock, for a thread that needs that lock, and the rank would never exit.
    del ddp
    gc.collect()
    dist.destroy_process_group()


def parse_options():
    parser = argparse.ArgumentParser(
        description="Trains a small character model with DDP over gloo; kill -9 it at any moment.",
        epilog="Example: torchrun --standalone --nproc_per_node=4 train.py --steps 200",
    )
    env = os.environ.get
    add = parser.add_argument
    add("--steps", type=int, default=400, help="train up to this step (default 400)")
    add("--checkpoint-every", type=int, default=20, metavar="N", help="steps (default 20)")
    add(
        "--checkpoint-dir",
        default=env("REGROW_CHECKPOINT_DIR") or "checkpoints",
        metavar="DIR",
        help="seen by all ranks (default $REGROW_CHECKPOINT_DIR, else ./checkpoints)",
    )
    add(
        "--result",
        default=env("RESULT_FILE", ""),
        metavar="FILE",
        help="JSON with the sha256 of the final parameters (default $RESULT_FILE)",
    )
    add("--seed", type=int, default=1, help="of everything random (default 1)")
    add("--step-delay", type=float, default=0.0, metavar="S", help="sleep after each step")
    add("--text", default="/usr/share/common-licenses/GPL-3", metavar="FILE", help="to learn from")
    add("--bug-at-step", type=int, default=-1, metavar="K", help="raise an error there, like a bug")
    add("--bug-rank", type=int, default=2, metavar="R", help="on this rank (default 2)")
    options = parser.parse_args()
    if options.steps < 1 or options.checkpoint_every < 1:
        parser.error("--steps and --checkpoint-every are at least 1")
    return options


if __name__ == "__main__":
    try:
        run(parse_options())
    except KeyboardInterrupt:
        sys.exit("interrupted; the same command goes on from the last complete checkpoint")
