"""What the paper printed, as it printed it: numbers of its tables, and statements on its figures.

Its figures on latent positions, depth and width have no numbers in the text. Of these there are
only statements, which our tables compare with our runs (`lno.experiments.claims`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

Printed = TypeVar("Printed")


def _row(columns: Sequence[str], *printed: Printed) -> dict[str, Printed]:
    """A row of a table, by the names of its columns."""
    return dict(zip(columns, printed, strict=True))


# Table 1: relative L2, percent, 500 epochs. None: "cannot handle this benchmark".
PROBLEMS = ("darcy", "ns2d", "airfoil", "elasticity", "plasticity", "pipe")
_TABLE_1: dict[str, tuple[float | None, ...]] = {
    "fno": (1.08, 15.56, None, None, None, None),
    "geofno": (1.08, 15.56, 1.38, 2.29, 0.74, 0.67),
    "ffno": (0.75, 11.51, 0.60, 1.85, 0.27, 0.68),
    "ufno": (1.28, 17.15, 1.19, 2.13, 0.41, 0.62),
    "lsm": (0.65, 15.35, 0.59, 2.18, 0.25, 0.50),
    "galerkin": (0.84, 14.01, 1.18, 2.40, 1.20, 0.98),
    "oformer": (1.24, 17.05, 1.83, 1.83, 0.17, 1.68),
    "gnot": (1.04, 13.40, 0.75, 0.88, 3.19, 0.45),
    "factformer": (1.09, 12.14, 0.71, None, 3.12, 0.60),
    "ono": (0.76, 11.95, 0.61, 1.18, 0.48, 0.52),
    "transolver": (0.58, 8.79, 0.47, 0.62, 0.12, 0.31),
    "lno": (0.49, 8.45, 0.51, 0.52, 0.29, 0.26),
}
FORWARD: dict[str, dict[str, float]] = {
    model: {p: e for p, e in zip(PROBLEMS, errors, strict=True) if e is not None}
    for model, errors in _TABLE_1.items()
}

# Table 4: million parameters, GB, seconds an epoch, on an RTX 3090.
EFFICIENCY: dict[str, dict[str, tuple[float, float, float]]] = {
    "lno": _row(
        PROBLEMS,
        (0.76, 5.75, 38.98),
        (5.08, 7.58, 57.83),
        (1.36, 2.47, 9.35),
        (1.42, 1.39, 5.33),
        (1.36, 7.16, 41.62),
        (1.36, 2.89, 14.13),
    ),
    "transolver": _row(
        PROBLEMS,
        (1.91, 17.11, 88.68),
        (5.33, 17.17, 107.62),
        (1.91, 4.49, 19.49),
        (1.91, 1.48, 5.66),
        (1.91, 18.41, 83.43),
        (1.91, 5.94, 25.56),
    ),
}

# Table 5: relative L2, percent, trained on 43² points and tested on others.
RESOLUTION: dict[str, dict[int, float]] = {
    "fno": {61: 11.64, 85: 17.97, 141: 26.79, 211: 31.60, 241: 36.31},
    "ono": {61: 2.04, 85: 2.59, 141: 3.15, 211: 3.49, 241: 3.86},
    "gnot": {61: 2.56, 85: 2.75, 141: 2.94, 211: 3.05, 241: 3.17},
    "lno": {61: 1.79, 85: 1.92, 141: 2.14, 211: 2.29, 241: 2.44},
    "transolver": {61: 2.39, 85: 2.40, 141: 2.58, 211: 2.79, 241: 2.90},
}

# Table 2: relative MAE, percent, of completers inside the window, by the ratio of observed points.
COMPLETER: dict[str, dict[float, float]] = {
    "lno": {0.2: 0.60, 0.1: 0.74, 0.05: 0.77, 0.01: 1.18, 0.005: 2.05},
    "gnot": {0.2: 1.12, 0.1: 1.39, 0.05: 1.62, 0.01: 1.63, 0.005: 2.56},
    "deeponet": {0.2: 2.51, 0.1: 2.59, 0.05: 2.82, 0.01: 3.25, 0.005: 4.82},
}

# Table 3: relative MAE, percent, of propagators at t = 0 and t = 1, from the truth inside the
# window and from what a completer reconstructs of it at a ratio.
_FROM = ("truth", "lno 10%", "lno 1%", "gnot 10%", "gnot 1%", "deeponet 10%", "deeponet 1%")
PROPAGATOR: dict[str, dict[str, float]] = {
    "lno": _row(_FROM, 3.73, 5.69, 7.72, 9.03, 10.98, 13.11, 15.50),
    "gnot": _row(_FROM, 5.45, 6.50, 8.07, 8.04, 9.91, 10.41, 13.45),
    "deeponet": _row(_FROM, 7.34, 8.01, 9.38, 9.09, 10.80, 11.14, 13.87),
}

# Table 6, "The ablation results using different attention implementations": relative L2, percent.
# "physics" is LNO with Physics-Attention, "softmax" LNO itself.
ATTENTION: dict[str, dict[str, float]] = {
    "physics": _row(PROBLEMS, 0.53, 22.65, 0.74, 0.88, 0.49, 0.40),
    "efficient": _row(PROBLEMS, 0.63, 20.18, 0.59, 0.54, 0.44, 0.36),
    "nystrom": _row(PROBLEMS, 0.67, 23.03, 0.63, 0.79, 0.30, 0.48),
    "galerkin": _row(PROBLEMS, 0.71, 22.44, 0.89, 0.93, 0.43, 0.39),
    "softmax": FORWARD["lno"],
}

# Table 7, "The ablation results of strategy of sharing weights on six forward problem benchmarks":
# relative L2, percent, by whether encoder and decoder share their projector.
PROJECTORS: dict[bool, dict[str, float]] = {
    False: _row(PROBLEMS, 0.54, 10.67, 0.53, 1.09, 0.26, 0.36),
    True: FORWARD["lno"],
}

# Table 8, in appendix C, "The mean and standard deviations (computed based on 5 independent trials)
# of different models in solving the forward problem": relative L2, percent. The means are those of
# Table 1.
_DEVIATIONS = {
    "ffno": _row(PROBLEMS, 0.01, 0.25, 0.03, 0.03, 0.02, 0.02),
    "ufno": _row(PROBLEMS, 0.02, 0.29, 0.05, 0.03, 0.03, 0.02),
    "gnot": _row(PROBLEMS, 0.02, 0.28, 0.02, 0.03, 0.07, 0.02),
    "lno": _row(PROBLEMS, 0.01, 0.22, 0.05, 0.03, 0.03, 0.03),
    "transolver": _row(PROBLEMS, 0.01, 0.17, 0.02, 0.02, 0.02, 0.01),
}
FORWARD_SPREAD: dict[str, dict[str, tuple[float, float]]] = {
    model: {problem: (FORWARD[model][problem], std) for problem, std in row.items()}
    for model, row in _DEVIATIONS.items()
}

# Table 9, in appendix C: mean and standard deviation of three trials, of completers by ratio and of
# propagators from the truth.
COMPLETER_SPREAD: dict[str, dict[float, tuple[float, float]]] = {
    model: dict(zip(COMPLETER[model], pairs, strict=True))
    for model, pairs in {
        "lno": ((0.60, 0.03), (0.73, 0.11), (0.78, 0.04), (1.26, 0.09), (1.97, 0.04)),
        "gnot": ((1.23, 0.07), (1.33, 0.06), (1.63, 0.04), (1.75, 0.02), (2.53, 0.08)),
        "deeponet": ((2.37, 0.18), (2.52, 0.04), (2.77, 0.10), (3.18, 0.03), (4.70, 0.31)),
    }.items()
}
PROPAGATOR_SPREAD: dict[str, tuple[float, float]] = {
    "lno": (3.46, 0.21),
    "gnot": (5.43, 0.10),
    "deeponet": (7.42, 0.37),
}

# Table 10, in appendix D: sizes of LNO and how it was trained. Layers are transformer blocks, size
# is the number of latent positions.
_FORWARD_SETTINGS: dict[str, int | str] = {
    "layers": 8,
    "dim": 128,
    "size": 256,
    "heads": 8,
    "batch": 4,
    "epochs": 500,
    "loss": "rL2",
    "optimizer": "AdamW",
    "scheduler": "OneCycleLR",
}
_INVERSE_SETTINGS = {
    **_FORWARD_SETTINGS,
    "layers": 4,
    "dim": 96,
    "loss": "MSE",
    "scheduler": "StepLR",
}
SETTINGS: dict[str, dict[str, int | str]] = {
    "Darcy": {**_FORWARD_SETTINGS, "layers": 4},
    "NS2d": {**_FORWARD_SETTINGS, "dim": 256},
    "Airfoil": _FORWARD_SETTINGS,
    "Elasticity": _FORWARD_SETTINGS,
    "Plasticity": _FORWARD_SETTINGS,
    "Pipe": _FORWARD_SETTINGS,
    "Completer": _INVERSE_SETTINGS,
    "Propagator": _INVERSE_SETTINGS,
}

# Figure 3, "Sampling numbers in latent space v.s. Accuracy", and its text: on these problems the
# error falls until there are 512 latent positions; on the others it has a minimum before.
IMPROVES_TO_512 = ("darcy", "ns2d")
# Figure 4, in appendix A: the best number of blocks. Figure 5: the width up to which errors fall.
BEST_DEPTHS = (4, 8)
WIDE_ENOUGH = 256
