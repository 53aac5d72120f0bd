#!/usr/bin/python3
"""Stands in for training: starts in 20 ms, prints steps, keeps checkpoints, fails when told to.

    stub_rank.py [--steps N] [--delay S] [--checkpoint-every N] [--orders DIR] [--stop-delay S]

Checkpoints are those of recipes/examples/ddp_charlm: step_N/rank_R.pt and, last, COMPLETE. An
order is a file DIR/rank_R that a test writes; the rank takes it away and obeys: `exit 3`, `raise
some text`, `stall`. On TERM it needs --stop-delay seconds to end.
"""

import argparse
import os
import signal
import sys
import time
from pathlib import Path


def obey(order):
    word, _, rest = order.strip().partition(" ")
    if word == "exit":
        sys.exit(int(rest))
    if word == "raise":
        raise ValueError(rest)
    if word == "stall":
        time.sleep(1e6)
    sys.exit(f"unknown order: {order}")


def take_order(path):
    try:
        order = path.read_text()
        path.unlink()
    except OSError:
        return
    obey(order)


def write(path, text):
    hidden = path.with_name(f".{path.name}.{os.getpid()}")
    hidden.write_text(text)
    os.replace(hidden, path)


def save(step, rank, world):
    path = Path(os.environ["REGROW_CHECKPOINT_DIR"]) / f"step_{step}"
    path.mkdir(parents=True, exist_ok=True)
    write(path / f"rank_{rank}.pt", f"state of step {step}\n")
    if rank == 0:
        shards = [path / f"rank_{r}.pt" for r in range(world)]
        while not all(shard.exists() for shard in shards):
            time.sleep(0.005)
        write(path / "COMPLETE", "".join(f"{s.stat().st_size} {s.name}\n" for s in shards))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=10**9)
    parser.add_argument("--delay", type=float, default=0.05)
    parser.add_argument("--checkpoint-every", type=int, default=0)
    parser.add_argument("--orders", type=Path, default=Path("/nonexistent"))
    parser.add_argument("--stop-delay", type=float, default=0.0)
    options = parser.parse_args()

    def on_term(*_):
        time.sleep(options.stop_delay)
        os._exit(0)

    if options.stop_delay:
        signal.signal(signal.SIGTERM, on_term)
    rank = int(os.environ["RANK"])
    world = int(os.environ["WORLD_SIZE"])
    step = max(0, int(os.environ.get("REGROW_RESUME_STEP", "-1")))
    while step < options.steps:
        time.sleep(options.delay)
        take_order(options.orders / f"rank_{rank}")
        step += 1
        print(f"step {step} loss {1 / step:.4f}", flush=True)
        if options.checkpoint_every and step % options.checkpoint_every == 0:
            save(step, rank, world)


if __name__ == "__main__":
    main()
