"""Presets of the published models: their sizes, their recipes, and that they work."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import pytest
import torch

from lno import Spec
from lno.experiments.cases import CASES, Case, obstacle
from lno.experiments.paper import FORWARD, PROBLEMS
from lno.experiments.presets import own_presets, preset
from lno.models import MODELS, LatentGrid, build_model
from lno.tasks import Rollout, Snapshots
from lno.training.inputs import model_spec
from lno.training.loop import next_batches
from lno.training.samples import Samples
from lno.training.state import Training
from lno.training.step import Step

# What the published code reads: coordinates, values (and time), outputs, grid.
READ = {
    "darcy": Spec(2, 1, 1, (85, 85)),
    "ns2d": Spec(2, 10, 1, (64, 64)),
    "airfoil": Spec(2, 0, 1, (221, 51)),
    "elasticity": Spec(2, 0, 1),
    "plasticity": Spec(2, 2, 4, (101, 31)),
    "pipe": Spec(2, 2, 1, (129, 129)),
}
POSITIONS_ONLY = {("lsm", "pipe"), ("geofno", "pipe")}
# Numbers of weights, a complex one counted twice. The library's U-FNO also has those that its
# U-Nets do not use, and maps of geometry have a layer for the shape of an object.
SHAPE = 42 * 32 + 32
FFNO_UNUSED = 42 * 64 + 64 + 23 * (64 * 64 + 64)  # for the shape, and convolutions never called
COUNTS = {
    "fno": (37_881_217, 9_467_969, 2_366_881, 3_610_275 - SHAPE, 37_898_756, 37_865_601),
    "geofno": (None, None, 4_727_329, 3_020_963 - SHAPE, None, 2_368_033),
    "ffno": (None, None, 10_247_938, 10_964_355 - FFNO_UNUSED, None, None),
    "lsm": (19_195_969, 19_197_121, 4_812_769, 6_056_163 - SHAPE, 4_815_140, 4_812_769),
    "galerkin": (1_112_193, 4_391_681, 832_897, 1_096_065, 866_564, 1_096_577),
    "oformer": (2_556_321, None, None, None, None, None),
    "factformer": (1_782_913, 7_064_321, 97_505, None, None, 1_767_297),
    "ono": (2_029_137, 1_116_161, None, None, 77_476, 1_599_297),
    "ufno": (11_041_251, 44_100_675, 11_029_155, 233_162_121, 176_448_780, 176_349_315),
}
# Batch, learning rate, weight decay, schedule.
CYCLE, HALF = "onecycle_torch", "halve_fifths"
RECIPES: dict[tuple[str, str], tuple[int, float, float, str]] = {
    ("fno", "darcy"): (4, 1e-3, 1e-5, CYCLE),
    ("fno", "ns2d"): (20, 5e-4, 1e-4, HALF),
    ("fno", "plasticity"): (8, 1e-3, 1e-5, CYCLE),
    ("geofno", "airfoil"): (20, 1e-3, 1e-4, HALF),
    ("geofno", "elasticity"): (20, 1e-3, 1e-4, "halve_tenths"),
    ("ffno", "pipe"): (10, 1e-3, 1e-4, "cosine"),
    ("ffno", "elasticity"): (20, 1e-3, 1e-4, "cosine"),
    ("ffno", "ns2d"): (19, 2.5e-3, 1e-4, "cosine"),
    ("ufno", "airfoil"): (20, 1e-3, 1e-4, HALF),
    ("ufno", "elasticity"): (1, 1e-3, 1e-5, "cosine_torch"),
    ("lsm", "darcy"): (20, 5e-4, 1e-4, HALF),
    ("lsm", "pipe"): (4, 1e-3, 1e-5, CYCLE),
    ("galerkin", "ns2d"): (2, 1e-3, 1e-5, CYCLE),
    ("galerkin", "elasticity"): (1, 1e-3, 1e-5, "cosine_torch"),
    ("oformer", "darcy"): (8, 8e-4, 1e-4, "onecycle"),
    ("gnot", "darcy"): (4, 1e-3, 5e-5, CYCLE),
    ("gnot", "plasticity"): (8, 1e-3, 1e-5, CYCLE),
    ("factformer", "airfoil"): (4, 1e-3, 1e-5, CYCLE),
    ("ono", "ns2d"): (8, 1e-3, 1e-5, CYCLE),
    ("transolver", "airfoil"): (8, 1e-3, 1e-4, CYCLE),
}


@pytest.mark.parametrize("model", COUNTS)
def test_presets_have_the_published_numbers_of_weights(model: str) -> None:
    for problem, count in zip(PROBLEMS, COUNTS[model], strict=True):
        if count is None:
            continue
        spec = READ[problem]
        spec = replace(spec, in_channels=0) if (model, problem) in POSITIONS_ONLY else spec
        config = preset(problem, "paper", model).config
        with torch.device("meta"):
            built = build_model(model, config, spec)
        unused = unused_weights(config, spec) if model == "ufno" else 0
        assert sum(p.numel() for p in built.parameters()) == count - unused, problem


def unused_weights(config: Any, spec: Spec) -> int:
    """Of the two U-Nets in the library's U-FNO: stems, heads, embeddings of time, and geometry."""
    w = config.width
    read = spec.coordinates if config.reference is None else config.reference**2
    read += spec.in_channels - config.time_input
    stem, head = (read + 1) * 2 * w + (2 * w + 1) * w, (w + 1) * (w + spec.out_channels)
    time = 2 * (w + 1) * w if config.time_input else 0
    if config.cloud is None:
        return 2 * (stem + head + time)
    waves, v = 2 * 2 * w**2 * config.cloud.row_modes**2 * 2, config.cloud.map_width
    plane = 5 * v + (3 * v + 1) * 4 * v + 3 * (4 * v + 1) * 4 * v + (4 * v + 1) * 2
    return 2 * (stem + head + time + waves + plane + SHAPE) + SHAPE


@pytest.mark.parametrize(("model", "problem"), RECIPES)
def test_presets_have_the_published_recipes(model: str, problem: str) -> None:
    recipe = preset(problem, "paper", model).recipe
    batch, rate, decay, schedule = RECIPES[model, problem]
    # Of a sum over the batch; it scales with the loss where it is part of the gradient.
    coupled = recipe.optimizer == "adam" and model != "oformer"
    assert recipe.weight_decay == pytest.approx(decay / batch if coupled else decay)
    assert (recipe.batch, recipe.learning_rate, recipe.schedule) == (batch, rate, schedule)
    assert (recipe.physical, recipe.loss, recipe.beta2) == (True, "relative_l2", 0.999)


def test_limits_of_the_gradient_are_those_of_a_mean() -> None:
    terms = {("ono", "darcy"): 4, ("ono", "ns2d"): 8 * 10, ("ono", "pipe"): 4}
    terms |= {("ono", "airfoil"): 4, ("ono", "elasticity"): 8, ("transolver", "airfoil"): 8}
    terms |= {("transolver", "darcy"): 1}
    found = {
        (model, problem): round(0.1 / clip)
        for model in FORWARD
        for problem in PROBLEMS
        if (clip := preset(problem, "paper", model).recipe.clip) is not None
    }
    assert found == terms


@pytest.mark.parametrize("model", FORWARD)
def test_every_model_has_a_preset_for_every_problem_that_it_can_take(model: str) -> None:
    for problem in PROBLEMS:
        own, reason = own_presets(problem, model).get("paper"), obstacle(problem, model)
        assert (own is None) == (reason is not None), (problem, reason)
        if own is None:
            assert "2-D grid" in reason
            continue
        assert isinstance(own.config, MODELS[model][1])
        assert isinstance(own.task, Rollout) == (problem == "ns2d") == own.raw_coordinates
        assert isinstance(own.task, Snapshots) == (problem == "plasticity" and model != "lno")
        assert not own.recipe.gradient or problem == "darcy"
        assert own.recipe.queries is None and own.protocol == "standard"


def test_a_preset_says_where_it_is_not_what_was_published() -> None:
    for problem in PROBLEMS:
        for model in ("fno", "ufno", "lsm", "galerkin", "gnot", "transolver", "lno"):
            forced = problem == "ns2d" and model in ("fno", "ufno", "lsm")
            assert ("teacher forcing" in preset(problem, "paper", model).adapted) == forced
            assert forced or not preset(problem, "paper", model).adapted
    assert "teacher forcing" in preset("ns2d", "paper", "ono").adapted
    assert "radii" in preset("elasticity", "paper", "geofno").adapted
    assert preset("darcy", "paper", "ffno").adapted == "sizes and recipe of Pipe"
    assert preset("pipe", "paper", "oformer").adapted == "sizes and recipe of Darcy"
    assert "time as a third axis" in preset("plasticity", "paper", "geofno").adapted


SMALL = {"width": 16, "layers": 1, "blocks": 1, "heads": 2, "latent": 16, "latents": 8, "slices": 4}
SMALL |= {"modes": 3, "row_modes": 3, "column_modes": 3, "reference": 3, "tokens": 2, "basis": 2}
CLOUD = LatentGrid(32, 32, 3, 3, map_width=8)


@pytest.mark.parametrize("model", FORWARD)
def test_every_preset_takes_a_step(model: str) -> None:
    """With a small model of the same form on small data of the same layout."""
    for problem, case in CASES.items():
        if obstacle(problem, model) is not None:
            continue
        chosen = preset(problem, "paper", model)
        config, grid = small(chosen.config), (18, 9)
        task = Snapshots(3) if isinstance(chosen.task, Snapshots) else chosen.task
        grid = (case.grid[0] // 30,) if case.inputs == 0 else (*grid, 3)[: len(case.grid)]
        data = Case(grid, case.inputs, case.outputs).data(2)
        scale, cpu = task.normalizers(data), torch.device("cpu")
        net = build_model(model, config, model_spec(data, scale, task))
        recipe = replace(chosen.recipe, batch=2, epochs=1)
        training = Training([net], task, scale, recipe, data, None, cpu, 0)
        before = [p.detach().clone() for p in net.parameters()]
        assert Step(training)(*next_batches(training, Samples(data, scale, cpu))).isfinite()
        assert not all(map(torch.equal, before, net.parameters()))


def small(config: Any) -> Any:
    has = {field.name: getattr(config, field.name) for field in fields(config)}
    changed: dict[str, Any] = {k: v for k, v in SMALL.items() if has.get(k) is not None}
    latent = (key for key, v in has.items() if isinstance(v, LatentGrid))
    return replace(config, **changed, **dict.fromkeys(latent, CLOUD))
