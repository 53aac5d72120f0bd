"""DDP training whose ranks survive the loss of others: process, imports and data loaders stay, no
step is lost.

    job = regrow.torch.Job(net, optimizer, scheduler=scheduler, load=load)

    def train_step(n):
        loss = loss_of(job.model(batch(n)))       # job.model: DDP of `net`
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step()
        return loss

    job.run(train_step, steps)

Needs a recipe with `recovery: rank` and `rendezvous: store`. Under torchrun and plain Python it
trains as DDP does, and every error is raised. docs/resilient-training.md says what is promised, and
what a script must do for it. gloo is proven; the way for NCCL is written and was never run.

Everything here is for the main thread; the only other one breaks the collectives.
"""

import copy
import functools
import gc
import hashlib
import os
import pickle
import random
import socket
import sys
import threading
import time
from datetime import timedelta

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import regrow

__all__ = ["Job", "Loader"]

_TCP_ESTABLISHED = 1


def _seed_of(*parts):
    digest = hashlib.sha256("/".join(map(str, parts)).encode()).digest()
    return int.from_bytes(digest[:8], "little") >> 1


# --- connections -----------------------------------------------------------------------------------


def _sockets():
    """(descriptor, inode) of every socket of this process."""
    found = set()
    for name in os.listdir("/proc/self/fd"):
        try:
            target = os.readlink("/proc/self/fd/" + name)
        except OSError:
            continue
        if target.startswith("socket:["):
            found.add((int(name), target))
    return found


class _Borrowed:
    """A socket that belongs to somebody else, if it still is the one that is meant."""

    def __init__(self, descriptor, inode):
        self.socket = None
        try:
            copied = os.dup(descriptor)
        except OSError:
            return
        try:
            # The number may have gone to another socket meanwhile; the copy cannot change any more.
            if os.readlink(f"/proc/self/fd/{copied}") == inode:
                self.socket = socket.socket(fileno=os.dup(copied))
        except OSError:
            pass
        finally:
            os.close(copied)

    def __enter__(self):
        return self.socket

    def __exit__(self, *_):
        if self.socket is not None:
            self.socket.close()


def _ends(descriptor, inode):
    """Local and remote address of a connected TCP socket, or None."""
    with _Borrowed(descriptor, inode) as s:
        try:
            if s is None or s.family not in (socket.AF_INET, socket.AF_INET6):
                return None
            return s.getsockname()[:2], s.getpeername()[:2]
        except OSError:
            return None


def _break(sockets):
    for descriptor, inode in sockets:
        with _Borrowed(descriptor, inode) as s:
            try:
                if s is not None:
                    s.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass


def _is_whole(descriptor, inode):
    with _Borrowed(descriptor, inode) as s:
        try:
            return s is not None and (
                s.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0] == _TCP_ESTABLISHED
            )
        except OSError:
            return False


def _store_client(address, port, timeout):
    def connect(**more):
        return dist.TCPStore(
            address, port, None, False, timeout=timeout, wait_for_workers=False, **more
        )

    try:
        return connect()
    except RuntimeError as error:
        if "libuv" not in str(error):
            raise
    return connect(use_libuv=False)


class _Group:
    """The process group of one generation, and what it takes to break it."""

    def __init__(self, member, backend, timeout):
        self.member = member
        self.backend = backend
        self._before = _sockets()
        self._store_ends = {
            found[4][:2]
            for found in socket.getaddrinfo(
                member.master_address, member.master_port, type=socket.SOCK_STREAM
            )
        }
        self._sockets = []
        self._open = False
        os.environ["TORCH_NCCL_ASYNC_ERROR_HANDLING"] = "2"
        self._name = f"{regrow.init().job}/{member.generation}"
        self._timeout = timeout

    def open(self):
        """Meets the others. Not in the constructor: break_off() may be needed meanwhile."""
        member = self.member
        client = _store_client(member.master_address, member.master_port, self._timeout)
        store = dist.PrefixStore(self._name, client)
        dist.init_process_group(
            self.backend,
            store=dist.PrefixStore("group", store),
            rank=member.rank,
            world_size=member.world_size,
            timeout=self._timeout,
        )
        self._open = True
        if self.backend == "gloo":
            self._find_sockets(store)
        return self

    def _find_sockets(self, store):
        """Those of the group: their other end is an end that a peer calls its own. Whatever else
        this process has opened meanwhile is none of that."""
        mine = {s: _ends(*s) for s in _sockets() - self._before}
        local = [ends[0] for ends in mine.values() if ends is not None]
        store.set(f"ends/{self.member.rank}", pickle.dumps(local))
        peers = set()
        for rank in range(self.member.world_size):
            if rank != self.member.rank:
                peers.update(pickle.loads(store.get(f"ends/{rank}")))
        self._sockets = [s for s, ends in mine.items() if ends is not None and ends[1] in peers]

    def break_off(self):
        """Any thread. Everything that waits for others in this group raises at once."""
        _break(self._sockets)
        store = [s for s in _sockets() - self._before if self._is_store(s)]
        _break(store)
        if self.backend == "nccl" and self._open:
            backend = dist.group.WORLD._get_backend(torch.device("cuda"))
            for name in ("abort", "_abort"):
                if hasattr(backend, name):
                    return getattr(backend, name)()

    def _is_store(self, one):
        ends = _ends(*one)
        if ends is None:
            return False
        address, port = ends[1]
        return (address.replace("::ffff:", ""), port) in self._store_ends

    def is_whole(self):
        """False if a connection of the group is broken: then an error may be that of another."""
        return self._open and self.backend == "gloo" and all(_is_whole(*s) for s in self._sockets)

    def close(self):
        if dist.is_initialized():
            dist.destroy_process_group()


# --- state -----------------------------------------------------------------------------------------


class _Tensor:
    """Stands for a tensor in a packed state."""

    def __init__(self, index):
        self.index = index


def _pack(value, tensors):
    if torch.is_tensor(value):
        tensors.append(value.detach())
        return _Tensor(len(tensors) - 1)
    if isinstance(value, dict):
        packed = {key: _pack(item, tensors) for key, item in value.items()}
        return packed if type(value) is dict else type(value)(packed)
    if isinstance(value, (list, tuple)) and type(value) in (list, tuple):
        return type(value)(_pack(item, tensors) for item in value)
    return value


def _unpack(value, tensors):
    if isinstance(value, _Tensor):
        return tensors[value.index]
    if isinstance(value, dict):
        unpacked = {key: _unpack(item, tensors) for key, item in value.items()}
        return unpacked if type(value) is dict else type(value)(unpacked)
    if isinstance(value, (list, tuple)) and type(value) in (list, tuple):
        return type(value)(_unpack(item, tensors) for item in value)
    return value


def _broadcast_state(state, source, device):
    """What `state` is at the source, at every rank. One message for all tensors of a type."""
    is_source = dist.get_rank() == source
    tensors = []
    if is_source:
        packed = _pack(state, tensors)
        shapes = [(t.dtype, tuple(t.shape)) for t in tensors]
        words = torch.frombuffer(bytearray(pickle.dumps((packed, shapes))), dtype=torch.uint8)
        words = words.to(device)
        size = torch.tensor([words.numel()], device=device)
    else:
        size = torch.zeros(1, dtype=torch.long, device=device)
    dist.broadcast(size, source)
    if not is_source:
        words = torch.empty(int(size), dtype=torch.uint8, device=device)
    dist.broadcast(words, source)
    if not is_source:
        packed, shapes = pickle.loads(bytes(words.cpu().numpy()))
        tensors = [None] * len(shapes)
    for dtype in sorted({s[0] for s in shapes}, key=str):
        where = [i for i, s in enumerate(shapes) if s[0] == dtype]
        sizes = [int(torch.Size(shapes[i][1]).numel()) for i in where]
        if is_source:
            flat = torch.cat([tensors[i].reshape(-1).to(device) for i in where])
        else:
            flat = torch.empty(sum(sizes), dtype=dtype, device=device)
        dist.broadcast(flat.view(torch.uint8), source)  # not every type is one that gloo knows
        if not is_source:
            for i, part in zip(where, flat.split(sizes)):
                tensors[i] = part.reshape(shapes[i][1]).clone()
    return state if is_source else _unpack(packed, tensors)


# --- the job ---------------------------------------------------------------------------------------


class Job:
    """A model in training, across generations of its process group.

    model, optimizer, and more: named objects with state_dict() and load_state_dict(), such as
    scheduler=, scaler=, ema=. What is not named here is not carried to a new rank.
    load(path): restores all of it from a checkpoint of the recipe's; needed if there are any.
    seed: before step n the random generators of Python, NumPy and PyTorch are seeded from (seed, n,
    rank), so that a step is the same whenever and wherever it is done; None leaves them alone, and
    then nothing promises equal results.
    backend: "nccl" if CUDA is there, else "gloo". ddp: arguments for DistributedDataParallel.
    patience: seconds to wait for news after a connection to another rank broke."""

    def __init__(
        self,
        model,
        optimizer,
        *,
        load=None,
        seed=0,
        backend=None,
        ddp=None,
        timeout=timedelta(minutes=30),
        patience=60,
        **more,
    ):
        self.module = model
        self.model = None
        self.info = regrow.init()
        self._state = {"model": model, "optimizer": optimizer, **more}
        self._load = load
        self._seed = seed
        self._backend = backend or ("nccl" if torch.cuda.is_available() else "gloo")
        # DDP otherwise changes its buckets after the first step, and with them the order of sums:
        # a group that is made anew would not give bit for bit what the old one gives.
        self._ddp = {"find_unused_parameters": True, **(ddp or {})}
        self._timeout = timeout
        self._patience = patience
        self._done = 0  # newest step that the state has; steps are counted from 1
        self._intact = False
        self._fresh = True
        self._in_step = False
        self._voted = False
        self._buffers = None
        self._group = None
        self._called = threading.Event()
        self._first = None  # the state before any step
        self.generation = 0
        for one in self._state.values():
            if hasattr(one, "param_groups"):
                self._guard(one)
        # Rank 0 alone hosts the rendezvous where regrow runs no store.
        self._resilient = (
            self.info.supervised and os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
        )
        if self._resilient:
            regrow.on_regroup(self._on_regroup)

    @property
    def device(self):
        return next(self.module.parameters()).device

    def run(self, train_step, steps):
        """train_step(n) for n from 1, or from the step after that of the checkpoint, to `steps`.
        What it returns, if anything, is reported as the loss of that step."""
        if self._resilient:
            self._first = copy.deepcopy(self._state_dicts())
        while True:
            try:
                if self.model is None:
                    self._form()
                while self._done < steps:
                    self._step(train_step, self._done + 1)
                break
            except Exception as error:  # noqa: BLE001  (what must not be swallowed is raised again)
                if not self._is_of_another(error):
                    raise
                print(
                    f"regrow: rank {self.info.rank} leaves generation {self.generation} after step "
                    f"{self._done}: {type(error).__name__}: {str(error)[:200]}",
                    file=sys.stderr,
                    flush=True,
                )
            self._leave()
        regrow.finish()

    # --- one step ---

    def _step(self, train_step, n):
        if self._seed is not None:
            self._reseed(n)
        self._keep_buffers()
        self._voted = False
        self._in_step = True
        loss = train_step(n)
        self._in_step = False
        self._done, self._intact = n, True
        regrow.step(n, loss)

    def _reseed(self, n):
        seed = _seed_of(self._seed, n, self.info.rank)
        random.seed(seed)
        if "numpy" in sys.modules:
            sys.modules["numpy"].random.seed(seed % 2**32)
        torch.manual_seed(seed)

    def _guard(self, optimizer):
        """Nothing is applied before every rank has come as far as that. Then whoever survives knows
        that all that it needs for this step was there, and its state is whole or untouched."""
        apply = optimizer.step

        def step(*args, **named):
            if self._in_step:
                self._vote()
                self._intact = False  # until train_step() returns
            return apply(*args, **named)

        functools.update_wrapper(step, apply)  # schedulers look for marks of their own on it
        optimizer.step = step

    def _vote(self):
        if self._voted or not dist.is_initialized() or dist.get_world_size() == 1:
            return
        dist.all_reduce(torch.ones(1, device=self._wire()))
        self._voted = True

    def _keep_buffers(self):
        """Running statistics change before anybody knows whether the step counts."""
        self._buffers = [(b, b.detach().clone()) for b in self.module.buffers()]

    def _wire(self):
        return self.device if self._backend == "nccl" else torch.device("cpu")

    # --- generations ---

    def _on_regroup(self, generation):
        self._called.set()
        group = self._group
        if group is not None and group.member.generation < generation:
            group.break_off()

    def _form(self):
        if not self._resilient:
            if not dist.is_initialized():
                self._open_plain()
            if self._fresh:
                self._resume(self.info.resume_step, self.info.resume_path)
        else:
            self._called.clear()
            member = regrow.rejoin(self._done if self._intact else -1, self._intact)
            self._group = _Group(member, self._backend, self._timeout)
            if regrow.generation() > member.generation:
                raise ConnectionError("another rank was lost meanwhile")
            self._group.open()
            self.generation = member.generation
            if member.source >= 0:
                self._heal(member)
            else:
                self._resume(member.resume_step, member.resume_path)
        self._fresh = False
        self.model = self.module
        if dist.get_world_size() > 1:
            self.model = DistributedDataParallel(self.module, **self._ddp)
        gc.collect()
        gc.freeze()  # else every collection during a recovery walks all that was imported

    def _open_plain(self):
        if "RANK" in os.environ:
            dist.init_process_group(self._backend, timeout=self._timeout)
        else:
            dist.init_process_group(self._backend, store=dist.HashStore(), rank=0, world_size=1)

    def _state_dicts(self):
        return {name: one.state_dict() for name, one in self._state.items()}

    def _swap(self, state):
        self._intact = False
        for name, one in self._state.items():
            one.load_state_dict(state[name])

    def _heal(self, member):
        is_source = member.rank == member.source
        has_it = self._intact and self._done == member.source_step
        state = self._state_dicts() if is_source else None
        staged = _broadcast_state(state, member.source, self._wire())
        if not has_it:
            self._swap(staged)
        self._done, self._intact = member.source_step, True

    def _resume(self, step, path):
        if path:
            if self._load is None:
                raise RuntimeError(f"the job has a checkpoint, {path}, and no load= to read it with")
            self._intact = False
            self._load(path)
            self._done = step
        elif not self._fresh:
            self._swap(self._first)
            self._done = 0
        self._intact = self._done > 0

    def _is_of_another(self, error):
        """Did another rank's end bring this about? Then there is news of it soon."""
        if not self._resilient or not isinstance(error, (RuntimeError, OSError)):
            return False
        if self._group is None:
            return False
        until = time.monotonic() + (0.2 if self._group.is_whole() else self._patience)
        while time.monotonic() < until:
            if regrow.generation() > self._group.member.generation:
                return True
            self._called.wait(0.02)
        return regrow.generation() > self._group.member.generation

    def _leave(self):
        """Out of the broken group. The state is that of the last boundary, or not intact."""
        self._group.break_off()
        if self._in_step and self._intact and self._buffers:
            with torch.no_grad():
                for buffer, kept in self._buffers:
                    buffer.copy_(kept)
        self._in_step = False
        self.model = None
        for parameter in self.module.parameters():
            parameter.grad = None
        gc.collect()  # DDP sits in a cycle, and holds the group
        self._group.close()
        self._group = None


class Loader:
    """Batches that are a function of the step: shuffled, with worker processes that read ahead.

        data = regrow.torch.Loader(dataset, batch_size=16, num_workers=2)
        batch = data.batch(n)

    Every epoch is another permutation of the dataset, from `seed`; rank r of w takes every w-th
    batch of it. A step that is done again, or the next one, costs nothing; any other starts the
    workers anew. More arguments are DataLoader's."""

    def __init__(self, dataset, batch_size=1, seed=0, shuffle=True, **more):
        self._dataset = dataset
        self._batch_size = batch_size
        self._seed = seed
        self._shuffle = shuffle
        self._more = more
        info = regrow.init()
        self._rank, self._world = info.rank, info.world_size
        self._per_epoch = len(dataset) // (batch_size * self._world)
        if self._per_epoch == 0:
            raise ValueError("the dataset is smaller than one batch for each rank")
        self._step = None  # of self._batch
        self._batch = None
        self._iterator = None

    def _indices(self, first):
        epoch, at = divmod(first, self._per_epoch)
        while True:
            if self._shuffle:
                generator = torch.Generator().manual_seed(_seed_of(self._seed, epoch))
                order = torch.randperm(len(self._dataset), generator=generator).tolist()
            else:
                order = range(len(self._dataset))
            for i in range(at, self._per_epoch):
                begin = (i * self._world + self._rank) * self._batch_size
                yield list(order[begin : begin + self._batch_size])
            epoch, at = epoch + 1, 0

    def batch(self, n):
        if n == self._step:
            return self._batch
        if self._iterator is None or n != self._step + 1:
            sampler = _Endless(self._indices(n))
            loader = torch.utils.data.DataLoader(
                self._dataset, batch_sampler=sampler, **self._more
            )
            self._iterator = iter(loader)
        self._step, self._batch = n, next(self._iterator)
        return self._batch


class _Endless:
    def __init__(self, batches):
        self._batches = batches

    def __iter__(self):
        return self._batches
