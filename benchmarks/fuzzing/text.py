"""Attacks on text files: CSV files of sensors, and the JSON of the ledger.

They have no digest: whoever changes a digit makes another valid file. So what is loaded is compared
with what the file says, as read here in another way.
"""

from __future__ import annotations

import csv
import json
import math
import re
from dataclasses import asdict
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

from fuzzing import models, mutate
from fuzzing.engine import CHANGED, SAME, WRITTEN, Attack, Attacks, Section
from fuzzing.mutate import Random, pick
from lno import Completion, RandomRatio
from lno.commands import reconstruct
from lno.ledger import Run
from lno.reconstruct import Reconstructor

# -- CSV -------------------------------------------------------------------------------------------

CELLS = (
    *("", " ", "nan", "NaN", "inf", "-Infinity", "1e999", "-1e400", "0x10", "1_000", "1,5", "１２"),
    *("#REF!", "=1+1", "null", "None", "1e", "--1", "0.5 m", "1 2", "٣", "1e-400", "-0", "+.5e0"),
    *('"', '"0.5', '0.5"', '"0.5"', '""', '"0\n5"', "\0", "x" * 200_000, "9" * 5000, "\x1b[2J"),
    *("<script>", "\ud7ff", "0.5\r", "\t0.5", "1e308", "-1e308", "5e-324", "1;2", "TRUE"),
)
NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")  # any digits that Unicode has


def prepare_csv(folder: Path) -> None:
    """A model that reads sensors, and a file of sensors."""
    completion = {"task": Completion(RandomRatio(0.2)), "conditional": True}
    operator = models.fit(models.surfaces(), **completion)
    Reconstructor(operator).save(folder / "model")
    random = np.random.default_rng(0)
    rows = [["x", "t", "u"], *random.uniform(0, 1, (12, 3)).round(6).tolist()]
    text = "".join(",".join(map(str, row)) + "\n" for row in rows)
    (folder / "sensors.csv").write_text(text)


class _Done(Exception):
    """The sensors were read and accepted."""


class _Reading:
    """A reconstructor that stops before it reconstructs."""

    def __init__(self, real: Reconstructor) -> None:
        self.real = real

    def __getattr__(self, name: str) -> Any:
        return getattr(self.real, name)

    def __call__(self, x: Any, u: Any, *others: Any, **more: Any) -> Any:
        self.real.validated(x, u)
        raise _Done(np.hstack((x, u)))


def changed_csv(text: str, random: Random) -> tuple[str, bytes]:
    """The kind of a change of a CSV file, and its content."""
    rows = [line.split(",") for line in text.splitlines()]
    kind = CSV_KINDS[int(random.integers(len(CSV_KINDS)))]
    row, column = int(random.integers(len(rows))), int(random.integers(3))
    if kind == "damaged":
        return kind, mutate.damage(text.encode(), random)
    if kind == "cell":
        rows[row][column] = pick(random, CELLS)
    elif kind == "columns":
        how = int(random.integers(6))
        for k, line in enumerate(rows):
            if how == 0:
                line.reverse()  # other order: the same sensors
            elif how == 1:
                line.append("a" if k == 0 else "text")
            elif how == 2:
                del line[column]
            elif how == 3:
                line.append(line[column])
            elif how == 4 and k == 0:
                line[column] = pick(random, (f" {line[column]} ", line[column].upper(), ""))
            elif how == 5:
                line.extend(["0"] * 5000)
    elif kind == "rows":
        how = int(random.integers(7))
        if how == 0:
            rows[row].append("1")
        elif how == 1:
            del rows[row][column]
        elif how == 2:
            del rows[row]
        elif how == 3:
            rows.insert(row, pick(random, ([], ["", "", ""], ["#comment"], ["x", "t", "u"])))
        elif how == 4:
            rows.append([*rows[-1][:2], "7.5"])
        elif how == 5:
            rows = rows[:1] * int(random.integers(0, 3))
        else:
            rows += rows[1:] * 2000
    joined = "\n".join(",".join(line) for line in rows) + "\n"
    if kind == "form":
        forms = (
            joined.replace(",", ";"),
            joined.replace(",", "\t"),
            joined.replace("\n", "\r\n"),
            joined.replace("\n", "\r"),
            "\ufeff" + joined,
            joined * 2,
            "\n" + joined,
            joined.replace(",", " , "),
            joined.replace(".", ","),
            "".join(f'"{c}"' if c.isdigit() else c for c in joined),
        )
        return kind, pick(random, forms).encode()
    if kind == "encoding":
        with_text = (
            joined.replace("u", "u,größe", 1).replace("\n", ",0\n").replace("größe,0", "größe")
        )
        coding = pick(random, ("utf-16", "utf-32", "latin-1", "utf-8", "utf-8-sig", "utf-16-le"))
        return kind, with_text.encode(coding)
    return kind, joined.encode("utf-8", "surrogatepass")


def says(data: bytes) -> np.ndarray | None:
    """The sensors that a CSV file tells of: columns x, t, u; None where it is no such file."""
    try:
        text = data.decode("utf-8-sig")
        lines = [row for row in csv.reader(text.splitlines(keepends=True)) if row]
        header = [name.strip() for name in lines[0]]
        rows = [row for row in lines[1:] if any(cell.strip() for cell in row)]
        found = [[row[header.index(name)].strip() for name in ("x", "t", "u")] for row in rows]
    except (UnicodeDecodeError, csv.Error, IndexError, ValueError):
        return None
    if not all(NUMBER.fullmatch(cell) for row in found for cell in row):
        return None
    values = np.array([[float(cell) for cell in row] for row in found])
    return values if np.isfinite(values).all() else None


def csv_attacks(folder: Path) -> Attacks:
    """The function that makes attack k on a file of sensors."""
    reading = _Reading(Reconstructor.load(folder / "model", "cpu"))
    text = (folder / "sensors.csv").read_text()
    base = says(text.encode())
    assert base is not None

    def attack(k: int, random: Random, work: Path) -> Attack:
        path = work / "sensors.csv"
        kind, data = changed_csv(text, random)
        path.write_bytes(data)

        def act() -> str:
            load = mock.patch.object(reconstruct.Reconstructor, "load", lambda *a, **k: reading)
            with load:
                try:
                    reconstruct.reconstruct_file(path, work / "field.npz", device="cpu")
                except _Done as done:
                    found = done.args[0]
            if found.shape == base.shape and np.array_equal(found, base):
                return SAME
            expected = says(data)
            same = expected is not None and np.array_equal(found, expected)
            return WRITTEN if same else CHANGED

        return Attack(kind, act, path)

    return attack


CSV_KINDS = ("damaged", "damaged", "cell", "cell", "columns", "rows", "form", "encoding")
CSV = Section("csv", 600, prepare_csv, csv_attacks)

# -- JSON ------------------------------------------------------------------------------------------


def prepare_json(folder: Path) -> None:
    """A run of the ledger."""
    run = Run(
        "darcy",
        "lno",
        "fast",
        "standard",
        seed=0,
        epochs=10.0,
        steps=100,
        task={"kind": "steady"},
        hardware="CPU",
        seconds=1.5,
        parameters=1000,
        data_hash="0" * 64,
        config={"model": {"width": 8}, "recipe": {"batch": 4}},
        metrics={"test": {"relative_l2": 0.01}},
        curve=[{"step": 100, "seconds": 1.5, "loss": 0.1, "error": None}],
        samples={"test": [0.01, 0.02]},
    )
    run.save(folder, "run").rename(folder / "run.json")


def json_attacks(folder: Path) -> Attacks:
    """The function that makes attack k on a JSON file."""
    data = (folder / "run.json").read_bytes()
    content = json.loads(data)

    def attack(k: int, random: Random, work: Path) -> Attack:
        path, kind = work / "run.json", ("damaged", "changed")[k % 2]
        if kind == "damaged":
            path.write_bytes(mutate.damage(data, random))
        else:
            text = mutate.dumps(mutate.change(content, random))
            path.write_text(text, "utf-8", "surrogatepass")

        def act() -> str:
            got, expected = asdict(Run.load(path)), json.loads(path.read_text(encoding="utf-8"))
            if mutate.canonical(got) == mutate.canonical(content):
                return SAME
            numbers_ok = all(map(math.isfinite, _numbers(got)))
            filled = {**{k: v for k, v in got.items() if k not in expected}, **expected}
            same = mutate.canonical(filled) == mutate.canonical(got)
            return WRITTEN if same and numbers_ok else CHANGED

        return Attack(kind, act, path)

    return attack


def _numbers(content: Any) -> list[float]:
    if isinstance(content, dict | list | tuple):
        inner = content.values() if isinstance(content, dict) else content
        return [number for value in inner for number in _numbers(value)]
    return [content] if isinstance(content, float) else []


JSON = Section("json", 300, prepare_json, json_attacks)
