"""Numbers of the paper's ablations, as it printed them. Each says where it stands.

Its figures on latent positions, depth and width have no numbers in the text. Of these there are
only statements, which our tables compare with our runs (`lno.experiments.claims`).
"""

from __future__ import annotations

# Table 6, "The ablation results using different attention implementations": relative L2, percent.
# "physics" is LNO with Physics-Attention, "softmax" LNO itself.
ATTENTION: dict[str, dict[str, float]] = {
    "physics": {
        "darcy": 0.53,
        "ns2d": 22.65,
        "airfoil": 0.74,
        "elasticity": 0.88,
        "plasticity": 0.49,
        "pipe": 0.40,
    },
    "efficient": {
        "darcy": 0.63,
        "ns2d": 20.18,
        "airfoil": 0.59,
        "elasticity": 0.54,
        "plasticity": 0.44,
        "pipe": 0.36,
    },
    "nystrom": {
        "darcy": 0.67,
        "ns2d": 23.03,
        "airfoil": 0.63,
        "elasticity": 0.79,
        "plasticity": 0.30,
        "pipe": 0.48,
    },
    "galerkin": {
        "darcy": 0.71,
        "ns2d": 22.44,
        "airfoil": 0.89,
        "elasticity": 0.93,
        "plasticity": 0.43,
        "pipe": 0.39,
    },
    "softmax": {
        "darcy": 0.49,
        "ns2d": 8.45,
        "airfoil": 0.51,
        "elasticity": 0.52,
        "plasticity": 0.29,
        "pipe": 0.26,
    },
}

# Table 7, "The ablation results of strategy of sharing weights on six forward problem benchmarks":
# relative L2, percent, by whether encoder and decoder share their projector.
PROJECTORS: dict[bool, dict[str, float]] = {
    False: {
        "darcy": 0.54,
        "ns2d": 10.67,
        "airfoil": 0.53,
        "elasticity": 1.09,
        "plasticity": 0.26,
        "pipe": 0.36,
    },
    True: {
        "darcy": 0.49,
        "ns2d": 8.45,
        "airfoil": 0.51,
        "elasticity": 0.52,
        "plasticity": 0.29,
        "pipe": 0.26,
    },
}

# Table 8, in appendix C, "The mean and standard deviations (computed based on 5 independent trials)
# of different models in solving the forward problem": relative L2, percent.
FORWARD_SPREAD: dict[str, dict[str, tuple[float, float]]] = {
    "lno": {
        "darcy": (0.49, 0.01),
        "ns2d": (8.45, 0.22),
        "airfoil": (0.51, 0.05),
        "elasticity": (0.52, 0.03),
        "plasticity": (0.29, 0.03),
        "pipe": (0.26, 0.03),
    },
    "transolver": {
        "darcy": (0.58, 0.01),
        "ns2d": (8.79, 0.17),
        "airfoil": (0.47, 0.02),
        "elasticity": (0.62, 0.02),
        "plasticity": (0.12, 0.02),
        "pipe": (0.31, 0.01),
    },
}

# Figure 3, "Sampling numbers in latent space v.s. Accuracy", and its text: on these problems the
# error falls until there are 512 latent positions; on the others it has a minimum before.
IMPROVES_TO_512 = ("darcy", "ns2d")
# Figure 4, in appendix A: the best number of blocks. Figure 5: the width up to which errors fall.
BEST_DEPTHS = (4, 8)
WIDE_ENOUGH = 256
