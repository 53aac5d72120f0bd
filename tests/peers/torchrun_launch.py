#!/usr/bin/python3
"""torchrun, also where Debian ships it broken.

    tests/peers/torchrun_launch.py --standalone --nproc_per_node=4 train.py --steps 100

Debian 12 has torch 1.13 and Python 3.11. From 3.11 on, iterating a Flag class skips members of
value zero, so torch's search for "the member equal to 0" finds none and its launcher dies before
it starts anything. Where that is so, the parser of --redirects and --tee is replaced; then the
unmodified launcher runs. Newer torch versions are left alone.
"""

from torch.distributed.elastic.multiprocessing.api import Std


def parse_std(_cls, text):
    """ "3" is one choice for all local ranks, "0:3,1:0" one for each that is named."""
    if ":" not in text:
        return Std(int(text))
    pairs = (item.split(":") for item in text.split(","))
    return {int(local_rank): Std(int(value)) for local_rank, value in pairs}


if __name__ == "__main__":
    if Std.from_str("0") is None:
        Std.from_str = classmethod(parse_std)
    from torch.distributed.run import main

    main()
