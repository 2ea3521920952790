"""Attacks on model files."""

from __future__ import annotations

import io
import json
import pickle
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file, save_file

from fuzzing import mutate
from fuzzing.engine import CHANGED, SAME, WRITTEN, Attack, Attacks, Section
from fuzzing.mutate import Random, pick
from lno import Completion, Fields, Operator, RandomRatio, Rollout
from lno.commands.info import describe_file
from lno.files import UNSEALED, seal
from lno.operator_file import KEY
from lno.trust import Trust

SMALL: dict[str, dict[str, int]] = {
    "lno": {"width": 8, "latents": 4, "blocks": 1, "heads": 2, "layers": 1},
    "deeponet": {},
}
Tensors = dict[str, torch.Tensor]
Change = Callable[[Any, Tensors, Random], tuple[Any, Tensors]]


def waves(samples: int = 6, points: int = 8) -> Fields:
    """Small data of one coordinate."""
    x = np.linspace(0, 3, points)[:, None]
    a = np.linspace(0.5, 2, samples)[:, None, None]
    names = {"x": ["t"], "u": ["f"], "y": ["g"]}
    return Fields(x, u=a * np.sin(x), y=a * np.cos(x), grid=(points,), names=names)


def surfaces() -> Fields:
    """Whole fields on a small periodic grid, and a parameter."""
    x, t = np.meshgrid(np.arange(6) / 6, np.linspace(0, 1, 5), indexing="ij")
    points = np.stack((x.ravel(), t.ravel()), -1)
    a = np.linspace(0.5, 2, 5)[:, None]
    y = (a * np.sin(2 * np.pi * points[:, 0]) * np.exp(-points[:, 1]))[..., None]
    names = {"x": ["x", "t"], "y": ["u"]}
    return Fields(points, y=y, grid=(6, 5), period=(1.0, None), names=names)


def fit(data: Fields, **settings: Any) -> Operator:
    """A tiny operator."""
    usual = {"config": SMALL["lno"], "epochs": 1, "device": "cpu", "progress": False}
    return Operator.fit(data, **{**usual, **settings})


def prepare(folder: Path) -> None:
    """Small operators of several kinds in files."""
    a, b = waves(), surfaces()
    fit(a).calibrated(waves(20)).save(folder / "steady.safetensors")
    frames = Fields(a.x, a.u, y=np.concatenate([a.y, a.u], -1))
    fit(frames, task=Rollout(2), members=2).save(folder / "rollout.safetensors")
    completion = {"task": Completion(RandomRatio(0.2)), "conditional": True, "members": 2}
    fit(b, **completion).save(folder / "half.safetensors", half=True)
    numbers = a.replace(parameters=np.arange(6.0)[:, None])
    init = fit(numbers, model="deeponet", config=None)
    fit(numbers, init=init, config=None, model="deeponet").save(folder / "tuned.safetensors")


@dataclass(frozen=True)
class Base:
    """An undamaged file."""

    path: Path
    data: bytes
    content: dict[str, Any]
    tensors: Tensors

    @property
    def header(self) -> int:
        """Where the tensors begin."""
        return 8 + int.from_bytes(self.data[:8], "little")

    def forged(self, change: Change, random: Random, path: Path, sealed: bool = True) -> None:
        """Write the file with other content, and a digest that fits unless told otherwise."""
        content, tensors = change(self.content, self.tensors, random)
        if sealed and isinstance(content, dict) and "digest" in content:
            content = {"digest": UNSEALED, **{k: v for k, v in content.items() if k != "digest"}}
        save_file(tensors, path, {KEY: mutate.dumps(content)})
        if sealed and isinstance(content, dict) and "digest" in content:
            seal(path)


def open_base(path: Path, key: str) -> Base:
    """An undamaged file in memory."""
    data = path.read_bytes()
    header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
    return Base(path, data, json.loads(header["__metadata__"][key]), load_file(path))


# -- changes of content ----------------------------------------------------------------------------


def other_metadata(content: Any, tensors: Tensors, random: Random) -> tuple[Any, Tensors]:
    """Metadata with one change."""
    return mutate.change(content, random), tensors


def not_finite(content: Any, tensors: Tensors, random: Random) -> tuple[Any, Tensors]:
    """NaN or infinity in one weight."""
    name = pick(random, [n for n, t in tensors.items() if t.is_floating_point() and t.numel()])
    bad = tensors[name].clone()
    bad.view(-1)[int(random.integers(bad.numel()))] = pick(
        random, (float("nan"), float("inf"), -float("inf"))
    )
    return content, {**tensors, name: bad}


def other_values(content: Any, tensors: Tensors, random: Random) -> tuple[Any, Tensors]:
    """Another finite value in one weight."""
    name = pick(random, [n for n, t in tensors.items() if t.is_floating_point() and t.numel()])
    other = tensors[name].clone()
    other.view(-1)[int(random.integers(other.numel()))] = float(random.normal())
    return content, {**tensors, name: other}


def other_tensors(content: Any, tensors: Tensors, random: Random) -> tuple[Any, Tensors]:
    """A tensor that is missing, additional, renamed, or of another shape or type."""
    names, kind = list(tensors), int(random.integers(8))
    name, other = pick(random, names), pick(random, names)
    tensor, rest = tensors[name], {n: t for n, t in tensors.items() if n != name}
    if kind == 0:
        return content, rest
    if kind == 1:
        new = pick(random, ("extra", "", "../x", "weight\n", f"{name}.weight"))
        return content, {**tensors, new: tensor.clone()}
    if kind == 2:
        return content, {**rest, f"{name}x": tensor}
    if kind == 3:
        shape = pick(random, ((), (0,), (1, *tensor.shape), (tensor.numel(),), (2, 3)))
        return content, {**rest, name: torch.zeros(shape, dtype=tensor.dtype)}
    if kind == 4:
        kinds = (torch.float64, torch.bfloat16, torch.int64, torch.bool, torch.uint8)
        return content, {**rest, name: tensor.to(pick(random, kinds))}
    if kind == 5:
        return content, {**rest, name: torch.cat([tensor.reshape(-1)] * 2)}
    if kind == 6:
        return content, {**tensors, name: tensors[other].clone(), other: tensor.clone()}
    return content, {}


# -- changes of bytes ------------------------------------------------------------------------------


def claim(base: Base, random: Random) -> bytes:
    """A header that claims other sizes, offsets or types than the file has."""
    if random.integers(4) == 0:
        length = pick(random, (0, 1, 2**31, 2**63 - 1, 2**64 - 1, base.header - 7, base.header - 9))
        return int(length).to_bytes(8, "little") + base.data[8:]
    header = json.loads(base.data[8 : base.header])
    name = pick(random, [n for n in header if n != "__metadata__"])
    key = pick(random, ("shape", "data_offsets", "dtype"))
    wrong: dict[str, Any] = {
        "shape": ([10**12], [2**63], [-1], [], [10**6, 10**6], "x", [0], [1.5]),
        "data_offsets": ([0, 2**62], [10, 0], [0, 0], [-8, 8], [0], "x", [2**64, 2**64 + 8]),
        "dtype": ("F64", "I8", "BOOL", "X", 5, None, "F16"),
    }
    header[name][key] = pick(random, wrong[key])
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + base.data[base.header :]


def foreign(random: Random) -> bytes:
    """A file of another program."""
    archive = io.BytesIO()
    np.savez(archive, x=np.zeros(3))
    kind = int(random.integers(6))
    if kind == 0:
        return pickle.dumps({"a": [1, 2]}, protocol=int(random.integers(6)))
    if kind == 1:
        return archive.getvalue()
    if kind == 2:
        return b"\x89HDF\r\n\x1a\n" + random.bytes(500)
    if kind == 3:
        return random.bytes(int(random.integers(0, 2000)))
    if kind == 4:
        text = b'{"__metadata__": {"a": "b"}}'
        return len(text).to_bytes(8, "little") + text
    depth = int(random.integers(100, 100_000))
    text = b'{"a":' * depth + b"0" + b"}" * depth
    return len(text).to_bytes(8, "little") + text


# -- attacks ---------------------------------------------------------------------------------------


def attacks(folder: Path) -> Attacks:
    """The function that makes attack k on a model file."""
    bases = [open_base(path, KEY) for path in sorted(folder.glob("*.safetensors"))]

    def attack(k: int, random: Random, work: Path) -> Attack:
        base, path = bases[k % len(bases)], work / "model.safetensors"
        kind = KINDS[(k // len(bases)) % len(KINDS)]
        sealed = kind.startswith("forged")
        if kind == "bit flip in the weights":
            path.write_bytes(mutate.flip(base.data, random, base.header))
        elif kind == "bit flip in the header":
            path.write_bytes(mutate.flip(base.data, random, 0, base.header))
        elif kind == "bytes overwritten":
            path.write_bytes(mutate.scramble(base.data, random))
        elif kind == "cut or extended":
            path.write_bytes(mutate.resize(base.data, random))
        elif kind == "sizes claimed":
            path.write_bytes(claim(base, random))
        elif kind == "another program's":
            path.write_bytes(foreign(random))
        elif kind in CHANGES:
            base.forged(CHANGES[kind], random, path, sealed)
        same = path.read_bytes() == base.data

        def act() -> str:
            operator = Operator.load(path, "cpu")
            operator.save(work / "again.safetensors", half="half" in base.path.name)
            if (work / "again.safetensors").read_bytes() == base.data:
                return SAME
            if not sealed and not same:
                return CHANGED
            describe_file(path)
            again, file = open_base(work / "again.safetensors", KEY), open_base(path, KEY)
            return WRITTEN if _says(file, again) else CHANGED

        return Attack(kind, act, path)

    return attack


def _says(file: Base, again: Base) -> bool:
    """Whether what was loaded is what a file says, bit-for-bit but for the digest.

    What is missing in the file has its defaults: keys of a config, and all that is known of trust.
    """
    filled = {"trust": Trust().to_json(), **file.content}
    filled["config"] = {**again.content["config"], **file.content["config"]}
    contents = [mutate.canonical({**c, "digest": ""}) for c in (filled, again.content)]
    return (
        contents[0] == contents[1]
        and set(file.tensors) == set(again.tensors)
        and all(torch.equal(t, again.tensors[n]) for n, t in file.tensors.items())
    )


CHANGES: dict[str, Change] = {
    "not finite": not_finite,
    "forged, not finite": not_finite,
    "metadata changed": other_metadata,
    "forged metadata": other_metadata,
    "forged metadata, again": other_metadata,
    "forged metadata, once more": other_metadata,
    "tensors changed": other_tensors,
    "forged tensors": other_tensors,
    "forged values": other_values,
}
KINDS = (
    "bit flip in the weights",
    "bit flip in the weights",
    "bit flip in the header",
    "bytes overwritten",
    "cut or extended",
    "sizes claimed",
    "another program's",
    *CHANGES,
)
SECTION = Section("models", 1200, prepare, attacks)
