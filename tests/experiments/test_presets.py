"""What is trained where nothing else is said: presets, and splits of files."""

from __future__ import annotations

import pytest
import torch
from own_data import clouds

from lno import Recipe
from lno.experiments import inverse, presets
from lno.experiments.presets import default_preset, general_preset, preset
from lno.experiments.runs import split_of
from lno.models import MODELS
from lno.problems import PROBLEMS, Elasticity, Protocol


def test_the_split_of_a_file_is_its_own_the_protocols_or_nine_tenths(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    protocols = {"standard": Protocol(9, 3), "reference": Protocol(5, 5)}
    monkeypatch.setattr(Elasticity, "protocols", protocols)
    named = {"problem": "elasticity"}
    assert split_of(clouds(12, provenance={**named, "split": [6, 2]})) == (6, 2)
    assert split_of(clouds(12, provenance={**named, "split": [6, 2, 3]})) == (6, 2, 3)
    assert split_of(clouds(12, provenance=named)) == (9, 3)
    assert split_of(clouds(10, provenance=named)) == (5, 5)
    assert split_of(clouds(11, provenance=named)) == (10, 1)
    assert split_of(clouds(12, provenance={"problem": "unknown"})) == (11, 1)
    with pytest.raises(ValueError, match="at least two samples"):
        split_of(clouds(1))


def test_presets_of_the_paper_have_its_sizes() -> None:
    """Million weights of the paper's Table 4."""
    spec = {"airfoil": (2, 2, 1), "elasticity": (2, 0, 1), "plasticity": (3, 1, 4)}
    spec |= {"pipe": (2, 2, 1), "darcy": (2, 1, 1), "ns2d": (2, 10, 1)}
    printed = {"airfoil": 1.36, "elasticity": 1.42, "plasticity": 1.36, "pipe": 1.36}
    printed |= {"darcy": 0.76, "ns2d": 5.08}
    from lno.data import Spec

    for problem, sizes in spec.items():
        chosen = preset(problem, "paper")
        with torch.device("meta"):
            model = MODELS["lno"][0](Spec(*sizes), chosen.config)
        weights = sum(p.numel() for p in model.parameters()) / 1e6
        assert weights == pytest.approx(printed[problem], abs=0.02), problem
        assert chosen.recipe.physical == (problem in ("airfoil", "pipe"))


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("problem", [*PROBLEMS, "mine"])
def test_general_presets_ask_for_nothing_that_a_model_cannot_do(problem: str, model: str) -> None:
    cls, config = MODELS[model]
    for name in presets.GENERAL_RECIPES:
        chosen = general_preset(problem, name, model)
        able = cls.predicts_anywhere and not cls.queries_interact
        assert able or chosen.recipe.queries is None
        assert chosen.recipe.gradient == 0
        assert chosen.config is None or isinstance(chosen.config, config)
        if problem in PROBLEMS:
            assert chosen.protocol in PROBLEMS[problem].protocols


def test_presets_are_found_by_problem_and_model() -> None:
    assert default_preset("darcy", "lno") == "small"
    assert default_preset("airfoil", "lno") == default_preset("darcy", "transolver") == "paper"
    assert default_preset("mine", "transolver") == "small"
    assert preset("mine", "small", "transolver").recipe == Recipe(epochs=100, batch=4)
    with pytest.raises(
        ValueError, match=r"no preset 'tiny' of lno for darcy: expected one of paper"
    ):
        preset("darcy", "tiny")
    with pytest.raises(ValueError, match=r"no model 'fnoo': expected one of lno, "):
        preset("darcy", "small", "fnoo")


@pytest.mark.parametrize(
    "own",
    ["ab", 5, [5], [1.5, 2], [-3, 4], [6, 5, 2], [6, 0, 2], ["6", "2"], [True, 2], {}, [0, 2]],
)
def test_a_malformed_split_is_not_used(own: object) -> None:
    assert split_of(clouds(12, provenance={"split": own})) == (11, 1)


def test_the_papers_budget_is_500_epochs_in_batches_of_4() -> None:
    assert (inverse.AS_PUBLISHED.steps, inverse.AS_PUBLISHED.preset.recipe.batch) == (512_000, 4)
