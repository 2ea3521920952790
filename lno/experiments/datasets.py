"""The data set of a problem and protocol, made once and kept in a cache folder."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lno.data import Fields
from lno.problems import PROBLEMS
from lno.problems.make import identity, make_file
from lno.training.device import pick_solver_device
from lno.training.distributed import leads
from lno.training.progress import progress


@dataclass(frozen=True)
class Protocol:
    """How many samples are for training and for testing, and how they are made."""

    train: int
    test: int
    parameters: dict[str, Any] = field(default_factory=dict)


# All from seed 0. "standard" is comparable with the literature; "small" is for a first look.
PROTOCOLS: dict[str, dict[str, Protocol]] = {
    "standard": {
        "darcy": Protocol(1000, 200, {"grid": 421, "every": 5}),
        "ns2d": Protocol(1000, 200),
        "burgers": Protocol(4096, 256),
    },
    # Trained on 43² points and tested on other resolutions of the same fields.
    "resolution": {"darcy": Protocol(1000, 200, {"grid": 421, "every": 10})},
    "small": {
        "darcy": Protocol(500, 100, {"grid": 85, "every": 2}),
        "burgers": Protocol(512, 64, {"grid": 64}),
    },
}


def cache_folder() -> Path:
    """`$LNO_DATA`, or `lno` in the user's cache folder."""
    if "LNO_DATA" in os.environ:
        return Path(os.environ["LNO_DATA"])
    return Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "lno"


def dataset(
    problem: str, protocol: str = "standard", device: str = "auto", show: bool = True
) -> tuple[Fields, Fields]:
    """Training and test samples of a problem under a protocol, from the cache or newly made.

    The file is named by what decides it; `Fields.hash` identifies the content in every result.
    """
    if protocol not in PROTOCOLS:
        raise ValueError(f"no protocol {protocol!r}: expected one of {', '.join(PROTOCOLS)}")
    if problem not in PROTOCOLS[protocol]:
        known = ", ".join(PROTOCOLS[protocol])
        raise ValueError(f"no {protocol} data set {problem!r}: expected one of {known}")
    chosen = PROTOCOLS[protocol][problem]
    where = str(pick_solver_device(device))
    samples = chosen.train + chosen.test
    made = PROBLEMS[problem](**chosen.parameters)
    path = cache_folder() / f"{problem}-{samples}-{identity(made, 0, where)}.h5"
    while not path.exists() and not leads():
        time.sleep(0.5)  # the first process makes it; should it fail, torchrun ends all of them
    if path.exists():
        fields = Fields.load(path)
    else:
        with progress(f"making {problem}", samples, show) as update:
            fields = make_file(made, samples, path, 0, where, update)
    train, test = fields.split(chosen.train, chosen.test)
    return train, test
