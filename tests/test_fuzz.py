"""A small part of `benchmarks/fuzz.py`, and that it counts what it should."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from importlib.util import find_spec
from pathlib import Path

import h5py
import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from lno import Fields, Operator
from lno.files import UNSEALED, require_folder, seal
from lno.training.state import METADATA_KEY

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"
FILES = {"models": 68, "data": 44, "csv": 80, "json": 60, "api": 90}
if find_spec("meshio") and find_spec("xarray"):  # of the extra "formats"
    FILES["imports"] = 110
RUNS = {"checkpoints": 14, "kills": 4, "disk": 5, "writers": 3}
SMALL = {"width": 8, "latents": 4, "blocks": 1, "heads": 2, "layers": 1}

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="memory is measured by Linux")


def python(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """In a process of its own: forked processes cannot train once their parent has."""
    return subprocess.run(
        [sys.executable, *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )


@pytest.mark.parametrize("counts", [FILES, RUNS], ids=["files", "runs"])
def test_no_attack_gets_through(counts: dict[str, int], tmp_path: Path) -> None:
    asked = [f"{name}={count}" for name, count in counts.items()]
    done = python(BENCHMARKS / "fuzz.py", "--count", *asked, "--out", tmp_path / "fuzz.json")
    assert done.returncode == 0, done.stdout + done.stderr
    rows = json.loads((tmp_path / "fuzz.json").read_text())["rows"]
    assert {row["name"]: row["cases"] for row in rows} == counts


def test_bad_outcomes_are_counted_as_such(tmp_path: Path) -> None:
    """An attack of every kind, each of which must be found out."""
    script = f"""
        import json, os, sys, time
        from pathlib import Path
        sys.path.insert(0, {str(BENCHMARKS)!r})
        from fuzzing import engine
        engine.SECONDS, engine.GRACE = 0.5, 0.5

        def fail(error):
            raise error

        def attacks(base):
            def attack(k, random, work):
                path = work / "a.bin"
                path.write_bytes(bytes(1000))
                acts = [
                    lambda: engine.SAME,
                    lambda: engine.CHANGED,
                    lambda: fail(ValueError(f"{{path}}: expected something else, got this")),
                    lambda: fail(ValueError("expected something else, got this")),
                    lambda: fail(ValueError("a.bin")),
                    lambda: fail(KeyError(f"{{path}}: expected something else")),
                    lambda: len(bytearray(200_000_000)) and engine.SAME,
                    lambda: fail(MemoryError()),
                    lambda: os.abort(),
                    lambda: [time.sleep(0.01) for _ in range(1000)] and engine.SAME,
                    lambda: sum(range(10**11)),
                ]
                return engine.Attack("k", acts[k], path)
            return attack

        section = engine.Section("test", 11, lambda folder: None, attacks)
        result = engine.run_section(section, Path(sys.argv[1]))
        print(json.dumps(result.counts))
    """
    done = python("-c", textwrap.dedent(script), tmp_path / "work")
    assert done.returncode == 0, done.stderr
    counts = {"same": 1, "changed": 1, "refused": 1, "unclear": 3, "memory": 2, "crash": 1}
    assert json.loads(done.stdout) == {**counts, "hang": 2}


# -- what the attacks have found -------------------------------------------------------------------


def ragged(path: Path) -> Fields:
    random = np.random.default_rng(0)
    x = [random.random((n, 2)) for n in (30, 40, 50)]
    cells = [np.array([[0, 1, 2]] * k) for k in (1, 2, 3)]
    fields = Fields(x, [p[:, :1] for p in x], cells=cells)
    fields.save(path)
    return fields


def test_damage_that_a_lazy_reader_meets_names_the_file(tmp_path: Path) -> None:
    path = tmp_path / "a.h5"
    ragged(path)
    with h5py.File(path) as file:
        chunk = file["u"].id.get_chunk_info(0)
    content = bytearray(path.read_bytes())
    content[chunk.byte_offset + chunk.size // 2] ^= 1
    path.write_bytes(content)
    fields = Fields.load(path, lazy=True)
    with pytest.raises(ValueError, match=r"a\.h5 is damaged: u: ") as caught:
        fields[0]
    assert str(path) in str(caught.value)


def test_a_flipped_bit_in_offsets_is_noticed_by_a_lazy_reader(tmp_path: Path) -> None:
    path = tmp_path / "a.h5"
    ragged(path)
    with h5py.File(path) as file:
        chunk = file["cells_offsets"].id.get_chunk_info(0)  # no other column has these sizes
    content = bytearray(path.read_bytes())
    content[chunk.byte_offset + 8] ^= 2
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"a\.h5 is damaged"):
        Fields.load(path, lazy=True)


@pytest.mark.parametrize("lazy", [False, True])
@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("x_offsets", lambda old: old[:, None]),
        ("x", lambda old: old.astype(">f8")),
        ("x", lambda old: old.astype("f2")),
        ("cells", lambda old: old.astype("i4")),
    ],
)
def test_values_of_types_that_are_never_written(
    tmp_path: Path, name: str, change: object, lazy: bool
) -> None:
    path = tmp_path / "a.h5"
    ragged(path)
    with h5py.File(path, "r+") as file:
        old = file[name][...]
        del file[name]
        file[name] = change(old)  # type: ignore[operator]
    with pytest.raises(
        ValueError, match=r"a\.h5: (x_offsets does not fit|\w+: expected (float|int))"
    ):
        Fields.load(path, lazy=lazy)


def test_an_optimizer_that_is_not_finite_is_passed_over(tmp_path: Path) -> None:
    x = np.linspace(0, 1, 8)[:, None]
    data = Fields(x, u=np.ones((6, 8, 1)) * x, y=np.arange(6.0)[:, None, None] * x)

    def fit(**more: object) -> Operator:
        settings = {"config": SMALL, "progress": False, "device": "cpu", "epochs": 4}
        return Operator.fit(data, **settings, **more)  # type: ignore[arg-type]

    whole = fit()
    for k in range(3):
        fit(folder=tmp_path, pause_after=1e-9, resume=k > 0)
    newest = max(tmp_path.glob("checkpoint-*"))
    with safe_open(newest, framework="pt") as file:
        record = json.loads(file.metadata()[METADATA_KEY])
    tensors = load_file(newest)
    name = next(n for n in tensors if n.startswith("optimizer.") and tensors[n].is_floating_point())
    tensors[name].view(-1)[0] = torch.inf
    save_file(tensors, newest, {METADATA_KEY: json.dumps({**record, "digest": UNSEALED})})
    seal(newest)
    with pytest.warns(UserWarning, match="is damaged and was passed over: .*is not finite"):
        resumed = fit(folder=tmp_path, resume=True)
    pairs = zip(resumed.model.parameters(), whole.model.parameters(), strict=True)
    assert all(torch.equal(a, b) for a, b in pairs)


def test_a_zero_byte_in_the_name_of_a_folder() -> None:
    with pytest.raises(OSError, match=r"cannot write into .*embedded null"):
        require_folder("a\0b")
