"""Numbers that the paper printed, as it printed them. Each table says where it stands."""

from __future__ import annotations

# Table 1: relative L2, percent, 500 epochs.
FORWARD: dict[str, dict[str, float]] = {
    "lno": {
        "darcy": 0.49,
        "ns2d": 8.45,
        "airfoil": 0.51,
        "elasticity": 0.52,
        "plasticity": 0.29,
        "pipe": 0.26,
    },
    "transolver": {
        "darcy": 0.58,
        "ns2d": 8.79,
        "airfoil": 0.47,
        "elasticity": 0.62,
        "plasticity": 0.12,
        "pipe": 0.31,
    },
}

# Table 4: million weights, GB, seconds an epoch, on an RTX 3090.
EFFICIENCY: dict[str, dict[str, tuple[float, float, float]]] = {
    "lno": {
        "darcy": (0.76, 5.75, 38.98),
        "ns2d": (5.08, 7.58, 57.83),
        "airfoil": (1.36, 2.47, 9.35),
        "elasticity": (1.42, 1.39, 5.33),
        "plasticity": (1.36, 7.16, 41.62),
        "pipe": (1.36, 2.89, 14.13),
    },
    "transolver": {
        "darcy": (1.91, 17.11, 88.68),
        "ns2d": (5.33, 17.17, 107.62),
        "airfoil": (1.91, 4.49, 19.49),
        "elasticity": (1.91, 1.48, 5.66),
        "plasticity": (1.91, 18.41, 83.43),
        "pipe": (1.91, 5.94, 25.56),
    },
}

# Table 5: relative L2, percent, trained on 43² points and tested on others.
RESOLUTION: dict[str, dict[int, float]] = {
    "lno": {61: 1.79, 85: 1.92, 141: 2.14, 211: 2.29, 241: 2.44},
    "transolver": {61: 2.39, 85: 2.40, 141: 2.58, 211: 2.79, 241: 2.90},
}
