"""Settings that all models of the published library (thuml/Neural-Solver-Library) have."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lno.data.fields import Spec


def spec_of(args: Mapping[str, Any]) -> Spec:
    """The sizes of the data, from the library's arguments. The time is an input channel here."""
    grid = args["shapelist"] if args["geotype"] != "unstructured" else None
    return Spec(
        args["space_dim"],
        args["fun_dim"] + bool(args["time_input"]),
        args["out_dim"],
        None if grid is None else tuple(grid),
    )


def sizes_of(args: Mapping[str, Any]) -> dict[str, Any]:
    """The sizes that all its transformers have, as keys of their configs here."""
    return {
        "width": args["n_hidden"],
        "layers": args["n_layers"],
        "heads": args["n_heads"],
        "mlp_ratio": args["mlp_ratio"],
        "time_input": bool(args["time_input"]),
    }


def reference_of(args: Mapping[str, Any]) -> int | None:
    """The number of reference points along an axis, whose distances replace positions."""
    return args["ref"] if args["unified_pos"] and args["geotype"] != "unstructured" else None
