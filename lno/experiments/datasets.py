"""The data set of a problem and protocol, made once and kept in a cache folder."""

from __future__ import annotations

import os
import time
from pathlib import Path

from lno.data import Fields
from lno.files import owning
from lno.problems import PROBLEMS, Protocol
from lno.problems.make import identity, make_file
from lno.training.device import pick_solver_device
from lno.training.distributed import is_main
from lno.training.progress import progress


def cache_folder() -> Path:
    """`$LNO_DATA`, or `lno` in the user's cache folder."""
    if "LNO_DATA" in os.environ:
        return Path(os.environ["LNO_DATA"])
    return Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "lno"


def protocol_of(problem: str, protocol: str = "standard") -> Protocol:
    """A protocol of a problem by name; an unknown name is an error that lists those there are.

    >>> protocol_of("darcy").train
    1000
    """
    if problem not in PROBLEMS:
        raise ValueError(f"no problem {problem!r}: expected one of {', '.join(PROBLEMS)}")
    known = PROBLEMS[problem].protocols
    if protocol not in known:
        raise ValueError(
            f"no protocol {protocol!r} of {problem}: expected one of {', '.join(known)}"
        )
    return known[protocol]


def dataset(
    problem: str, protocol: str = "standard", device: str = "auto", show: bool = True
) -> tuple[Fields, Fields]:
    """Training and test samples of a problem under a protocol, from the cache or newly made.

    Samples are those of seed 0. The name of the file has a hash of everything that they depend on;
    `Fields.digest` identifies the content in every result.
    """
    chosen = protocol_of(problem, protocol)
    where, samples = str(pick_solver_device(device)), chosen.train + chosen.test
    made = PROBLEMS[problem](**chosen.parameters)
    path = cache_folder() / f"{problem}-{samples}-{identity(made, 0, where)}.h5"
    while not path.exists():
        if not is_main():
            time.sleep(0.5)  # the main process makes it; should it fail, torchrun ends all of them
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with owning(path):
                if path.exists():  # another run has just finished it
                    break
                with progress(f"making {problem}", samples, show) as update:
                    make_file(made, samples, path, 0, where, update)
        except BlockingIOError:  # another run needs the same data and is making them
            time.sleep(1.0)
    train, test = Fields.load(path).split(chosen.train, chosen.test)
    return train, test
