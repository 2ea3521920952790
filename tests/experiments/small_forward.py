"""The forward problems on a small scale, for tests: sizes and a spec."""

from __future__ import annotations

from lno.experiments.runs import RunSpec
from lno.models import LNOConfig, TransolverConfig

LNO = LNOConfig(width=16, latents=8, blocks=1, heads=2, layers=1)
TRANSOLVER = TransolverConfig(width=16, layers=1, heads=2, slices=4, reference=3)
PAPER = RunSpec("darcy", "lno", "paper", 3, "fp32")
