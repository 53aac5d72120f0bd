"""What a rank tells its regrow agent, and learns from it.

    import regrow

    info = regrow.init()
    for n in range(info.resume_step + 1, steps):
        loss = train(n)
        regrow.step(n, loss)
    regrow.finish()

Without a supervisor, plain or under torchrun, every call succeeds and sends nothing. The work is
done by libregrow_rank: the one named by REGROW_RANK_LIBRARY (an agent sets it), else the one that
was installed with this module, else the system's. No thread but for on_regroup(), nothing imported
but the standard library. After a fork the child is silent until it calls init() itself.

A script whose ranks survive the loss of others uses regrow.torch, or does itself what that does:
break its collectives when on_regroup() calls, then rejoin().
"""

import atexit
import ctypes
import glob
import os
from collections import namedtuple

__all__ = [
    "Info",
    "Membership",
    "checkpoint_saved",
    "finish",
    "generation",
    "init",
    "on_regroup",
    "rejoin",
    "step",
]

_NAME = "libregrow_rank.so.1"
_NAN = float("nan")

Info = namedtuple(
    "Info",
    "supervised rank world_size local_rank job generation incarnation restart_count "
    "resume_step resume_path checkpoint_directory",
)
Info.__doc__ = "Who this rank is; resume_step -1 and empty paths mean: none. See regrow/rank.h."


Membership = namedtuple(
    "Membership",
    "generation rank world_size source source_step master_address master_port "
    "resume_step resume_path",
)
Membership.__doc__ = "Who belongs together, and from which state it goes on. See regrow/rank.h."


class _Membership(ctypes.Structure):
    _fields_ = [
        ("size", ctypes.c_uint64),
        ("generation", ctypes.c_uint64),
        ("rank", ctypes.c_uint32),
        ("world_size", ctypes.c_uint32),
        ("source", ctypes.c_int32),
        ("master_port", ctypes.c_uint32),
        ("source_step", ctypes.c_int64),
        ("resume_step", ctypes.c_int64),
        ("master_address", ctypes.c_char_p),
        ("resume_path", ctypes.c_char_p),
    ]


_Regroup = ctypes.CFUNCTYPE(None, ctypes.c_uint64, ctypes.c_void_p)


class _Info(ctypes.Structure):
    _fields_ = [
        ("size", ctypes.c_uint64),
        ("supervised", ctypes.c_int32),
        ("rank", ctypes.c_uint32),
        ("world_size", ctypes.c_uint32),
        ("local_rank", ctypes.c_uint32),
        ("job", ctypes.c_uint64),
        ("generation", ctypes.c_uint64),
        ("incarnation", ctypes.c_uint32),
        ("restart_count", ctypes.c_uint32),
        ("resume_step", ctypes.c_int64),
        ("resume_path", ctypes.c_char_p),
        ("checkpoint_directory", ctypes.c_char_p),
    ]


def _candidates():
    named = os.environ.get("REGROW_RANK_LIBRARY")
    if named:
        yield named
    here = os.path.dirname(os.path.abspath(__file__))
    yield os.path.join(here, _NAME)
    # PREFIX/lib/python3/dist-packages/regrow
    prefix = os.path.abspath(os.path.join(here, *[os.pardir] * 4))
    for pattern in ("lib", "lib64", "lib/*-linux-*"):
        yield from glob.glob(os.path.join(glob.escape(prefix), pattern, _NAME))
    yield _NAME


def _load():
    tried = []
    for path in _candidates():
        try:
            library = ctypes.CDLL(path)
            library.regrow_init.argtypes = [ctypes.POINTER(_Info)]
            library.regrow_step.argtypes = [ctypes.c_int64, ctypes.c_double]
            library.regrow_generation.restype = ctypes.c_uint64
            library.regrow_finish.argtypes = [ctypes.c_int]
            library.regrow_on_regroup.argtypes = [_Regroup, ctypes.c_void_p]
            library.regrow_rejoin.argtypes = [
                ctypes.c_int64,
                ctypes.c_int,
                ctypes.POINTER(_Membership),
                ctypes.c_int,
            ]
            library.regrow_checkpoint_saved.argtypes = [ctypes.c_int64, ctypes.c_char_p]
            return library
        except (OSError, AttributeError) as error:
            tried.append(f"  {path}: {error}")
    raise ImportError(
        f"regrow: cannot load {_NAME}; install regrow or set REGROW_RANK_LIBRARY. Tried:\n"
        + "\n".join(tried)
    )


_library = _load()


def init():
    """Who this rank is; connects to the agent, if there is one. Waits for nobody."""
    info = _Info(size=ctypes.sizeof(_Info))
    _library.regrow_init(ctypes.byref(info))
    values = {name: getattr(info, name) for name in Info._fields}
    values["supervised"] = bool(info.supervised)
    for name in ("resume_path", "checkpoint_directory"):
        values[name] = os.fsdecode(values[name] or b"")
    return Info(**values)


def step(n, loss=None):
    """Step n is done. Never waits. A loss on a device is fetched by this: give it now and then."""
    if _library.regrow_step(int(n), _NAN if loss is None else float(loss)) != 0:
        raise ValueError(f"regrow.step({n}): steps are counted from 0")


def generation():
    """The generation of the job's membership; rises with each recovery."""
    return _library.regrow_generation()


def finish(timeout=5.0):
    """This rank is about to leave on purpose. True if the agent took that within the time-out."""
    return _library.regrow_finish(max(0, min(int(timeout * 1000), 2**31 - 1))) == 1


_regroup = None  # the library keeps a pointer to it


def on_regroup(call):
    """Calls call(generation) from a thread of the library's own for each new generation that this
    rank is wanted in. None takes it back. True if there is a supervisor who could call. What the
    call raises is printed, and changes nothing."""
    global _regroup
    if call is None:
        _library.regrow_on_regroup(_Regroup(), None)
        _regroup = None
        return False
    wrapped = _Regroup(lambda generation, _: call(generation))
    answer = _library.regrow_on_regroup(wrapped, None)
    if answer < 0:
        raise OSError(-answer, os.strerror(-answer))
    _regroup = wrapped
    atexit.register(on_regroup, None)  # no thread calls into an interpreter that ends
    return answer == 1


def rejoin(step=-1, intact=False, timeout=None):
    """Leaves the old generation and waits until every rank has joined the new one. `step`: the
    newest that this rank's state has; `intact`: others may take it over. TimeoutError if that
    takes longer than `timeout` seconds. Without a supervisor, and where no new generation is being
    formed, returns at once what the environment says."""
    member = _Membership(size=ctypes.sizeof(_Membership))
    milliseconds = -1 if timeout is None else max(0, min(int(timeout * 1000), 2**31 - 1))
    if _library.regrow_rejoin(int(step), bool(intact), ctypes.byref(member), milliseconds) != 1:
        raise TimeoutError(f"regrow.rejoin: not every rank has joined within {timeout} s")
    values = {name: getattr(member, name) for name in Membership._fields}
    for name in ("master_address", "resume_path"):
        values[name] = os.fsdecode(values[name] or b"")
    return Membership(**values)


def checkpoint_saved(step, path):
    """This rank's part of the checkpoint of `step` is written and synced. Never waits."""
    if _library.regrow_checkpoint_saved(int(step), os.fsencode(path)) != 0:
        raise ValueError(f"regrow.checkpoint_saved({step}, {path!r})")
