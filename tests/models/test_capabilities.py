"""What a model's capabilities promise holds. What they deny is refused, naming models that can."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from itertools import product

import pytest
import torch
from small_models import (
    CLOUD,
    GNOT_ONE,
    GRID,
    LNO_TIED,
    PYRAMID,
    REGULAR,
    build,
    close,
    disturb,
    inputs,
    mask_of_lengths,
    shallow,
)

import lno.models
from lno import Spec
from lno.data import Batch
from lno.models import (
    MODELS,
    Demand,
    LatentGrid,
    Model,
    ModelConfig,
    apply_model,
    build_model,
    capable_models,
    require_capable,
)

CLOUD_SPEC, GRID_SPEC = Spec(2, 1, 3), Spec(2, 1, 3, GRID)
DEMANDS = [
    Demand(spec, elsewhere, ragged, subset)
    for spec in (CLOUD_SPEC, GRID_SPEC)
    for elsewhere, ragged, subset in product((False, True), repeat=3)
]


def name_of(demand: Demand) -> str:
    asked = [key for key in ("elsewhere", "ragged", "subset") if getattr(demand, key)]
    return " ".join(["cloud" if demand.spec.grid is None else "grid", *asked])


EVERY_DEMAND = pytest.mark.parametrize("demand", DEMANDS, ids=name_of)
EVERY_MODEL = pytest.mark.parametrize("kind", MODELS)
NEED_GRID = [kind for kind, (model_class, _) in MODELS.items() if model_class.needs_grid]
able = cache(capable_models)  # takes a while
STREAMING = [kind for kind, (model_class, _) in MODELS.items() if model_class.streams]


def small(kind: str, spec: Spec, elsewhere: bool = False) -> Model:
    """A small model with the default config for the spec, and weights away from initial ones."""
    model_class, _ = MODELS[kind]
    config = model_class.default_config(spec)
    config = model_class.for_other_points(config) if elsewhere else config
    keys = {"width": 8, "heads": 2, "modes": 3}
    latent = (key for key, v in vars(config).items() if isinstance(v, LatentGrid))
    keys |= dict.fromkeys(latent, PYRAMID)
    config = replace(config, **{key: keys[key] for key in keys if key in vars(config)})
    return disturb(build_model(kind, shallow(config), spec)).eval()


@cache
def serves(kind: str, demand: Demand) -> bool:
    """Whether the model's predictions for a padded batch are those for each sample alone."""
    model = small(kind, demand.spec, demand.elsewhere)
    x, u, queries = inputs(q=60)
    lengths = (60, 23) if demand.ragged else (60, 60)
    mask = real = mask_of_lengths(*lengths)
    x, u, queries = (torch.where(mask[..., None], v, 9.0) for v in (x, u, queries))
    queries = queries if demand.elsewhere else x
    if demand.subset:
        index = torch.randperm(60, generator=torch.Generator().manual_seed(0))[:20]
        queries, real = queries[:, index], mask[:, index]
    try:
        together = model(x, u, queries, mask if demand.ragged else None)
        for k, n in enumerate(lengths):
            points = x[k : k + 1, :n]
            asked = points if queries is x else queries[k : k + 1, real[k]]
            if not close(together[k, real[k]], model(points, u[k : k + 1, :n], asked)[0], 1e-5):
                return False
    except ValueError:
        return False
    return True


@EVERY_MODEL
@EVERY_DEMAND
def test_a_model_is_refused_exactly_if_it_cannot(
    kind: str, demand: Demand, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lno.models.model.capable_models", able)
    if kind in NEED_GRID and demand.spec.grid is None:
        with pytest.raises(ValueError, match=r"needs data on a 2-D grid, .*, or use lno or "):
            small(kind, demand.spec)
        assert kind not in able(demand)
        return
    if serves(kind, demand):
        require_capable(small(kind, demand.spec, demand.elsewhere), kind, demand)
        assert kind in able(demand)
        return
    with pytest.raises(ValueError, match=f"^{kind} .*(expected|needs).* got ") as refusal:
        require_capable(small(kind, demand.spec, demand.elsewhere), kind, demand)
    named = str(refusal.value).rsplit(": use ", 1)[1].split(" or ")
    assert named == able(demand)
    assert named and all(serves(name, demand) for name in named)


def test_a_grid_that_the_config_needs_is_part_of_the_demand() -> None:
    model = build(REGULAR)
    require_capable(model, "transolver", Demand(GRID_SPEC))
    require_capable(model, "transolver", Demand(replace(GRID_SPEC, grid=(5, 7))))
    with pytest.raises(
        ValueError, match=r"needs points on a grid.*got none: use lno or .*gnot"
    ) as e:
        require_capable(model, "transolver", Demand(CLOUD_SPEC))
    assert "or transolver with its default config" in str(e.value)
    with pytest.raises(ValueError, match=r"needs every point of the grid \(10, 6\)"):
        require_capable(model, "transolver", Demand(GRID_SPEC, ragged=True))


@dataclass(frozen=True)
class ToyConfig(ModelConfig):
    width: int = 4
    bias: bool = True


class Toy(Model):
    """A linear map of all values on one grid, for tests: no model here is so limited."""

    predicts_anywhere = takes_other_grids = False
    needs_grid = True
    config: ToyConfig

    def __init__(self, spec: Spec, config: ToyConfig | None = None) -> None:
        super().__init__(spec, config)
        self.linear = torch.nn.Linear(spec.in_channels, spec.out_channels, self.config.bias)

    @classmethod
    def default_config(cls, spec: Spec) -> ToyConfig:
        return ToyConfig()

    def forward(
        self,
        x: torch.Tensor,
        u: torch.Tensor,
        x_query: torch.Tensor,
        mask: torch.Tensor | None = None,
    ) -> torch.Tensor:
        return self.linear(u)


def test_a_model_for_one_grid_takes_no_other() -> None:
    toy, other = Toy(GRID_SPEC), replace(GRID_SPEC, grid=(5, 7))
    require_capable(toy, "toy", Demand(GRID_SPEC))
    assert toy.on_grid(GRID) is toy
    with pytest.raises(ValueError, match=r"only on the grid.*expected \(10, 6\), got \(5, 7\)"):
        toy.on_grid((5, 7))
    refusal = rf"toy works only on the grid.*got \(5, 7\): use {' or '.join(MODELS)}$"
    with pytest.raises(ValueError, match=refusal):
        require_capable(toy, "toy", Demand(other))


def test_models_are_named_from_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    demand, model = Demand(CLOUD_SPEC, elsewhere=True), build(CLOUD)
    monkeypatch.setattr(lno.models, "MODELS", table := {})
    with pytest.raises(ValueError, match="no other model can take these data"):
        require_capable(model, "transolver", demand)
    table.update(toy=(Toy, ToyConfig), mine=MODELS["lno"])
    with pytest.raises(ValueError, match=r": use mine$"):
        require_capable(model, "transolver", demand)
    assert build_model("toy", None, GRID_SPEC).config == ToyConfig()


def test_configs_are_checked_by_their_types() -> None:
    with pytest.raises(ValueError, match=r"ToyConfig.width must be a whole number from 1 to 8192"):
        ToyConfig(width=9000)
    with pytest.raises(ValueError, match=r"ToyConfig.bias must be True or False, got 1"):
        ToyConfig(bias=1)  # type: ignore[arg-type]


@EVERY_MODEL
@pytest.mark.parametrize("spec", [CLOUD_SPEC, GRID_SPEC, Spec(2, 1, 3, (60,))])
def test_default_models_of_every_spec_read_each_sample_and_no_other(kind: str, spec: Spec) -> None:
    if kind in NEED_GRID and spec is not GRID_SPEC:
        with pytest.raises(ValueError, match="needs data on a 2-D grid"):
            build_model(kind, None, spec)
        return
    with torch.device("meta"):
        require_capable(build_model(kind, None, spec), kind, Demand(spec))
    model, (x, u, _) = small(kind, spec), inputs()
    changed = u.clone()
    changed[0, 17] += 1.0
    with torch.no_grad():
        before, after = model(x, u, x), model(x, changed, x)
        alone = model(first := x[:1], changed[:1], first)
    assert before.shape == (2, 60, 3)
    # Initial weights may read little of a single point: 1e-5 is more than rounding.
    assert not close(after[0], before[0], 1e-5) and close(after[1], before[1], 1e-6)
    assert close(after[:1], alone, 1e-5)


def test_another_grid_has_the_same_weights() -> None:
    for model in (build(LNO_TIED), build(CLOUD)):
        assert model.on_grid((5, 7)) is model
    model = build(REGULAR).eval()
    moved, (x, u, _) = model.on_grid((5, 7)), inputs(n=35)
    assert moved.spec.grid == (5, 7) and model.spec.grid == GRID and not moved.training
    for name, weight in model.state_dict().items():
        assert moved.state_dict()[name].data_ptr() == weight.data_ptr(), name
    fresh = type(model)(moved.spec, REGULAR)
    fresh.load_state_dict(model.state_dict())
    assert torch.equal(moved(x, u, x), fresh(x, u, x))
    with pytest.raises(ValueError, match="need data on a 2-D grid"):
        model.on_grid((35,))


def parts_of(*tensors: torch.Tensor | None) -> Iterator[tuple[torch.Tensor | None, ...]]:
    for part in (slice(25), slice(25, 26), slice(26, None)):
        yield tuple(None if v is None else v[:, part] for v in tensors)


def test_the_models_that_stream() -> None:
    assert STREAMING == ["lno", "lno_plus"]  # the tests below are about these


@pytest.mark.parametrize("kind", [kind for kind in MODELS if kind not in STREAMING])
def test_other_models_refuse_to_stream(kind: str) -> None:
    model, (x, u, q) = small(kind, GRID_SPEC), inputs()
    for call in (
        lambda: model.encode_parts(lambda: parts_of(x, u, None, None)),
        lambda: model.decode(u, q),
        lambda: model.reduce_with(None),
    ):
        with pytest.raises(ValueError, match="does not stream"):
            call()


@pytest.mark.parametrize("kind", STREAMING)
@pytest.mark.parametrize("masked", [False, True])
def test_streaming_models_read_parts_and_decode_parts(kind: str, masked: bool) -> None:
    model, (x, u, q) = small(kind, CLOUD_SPEC, elsewhere=True), inputs()
    mask = mask_of_lengths(60, 23) if masked else None
    z = model.encode_parts(lambda: parts_of(x, u, mask, None))
    y = torch.cat([model.decode(z, q[:, :7]), model.decode(z, q[:, 7:])], dim=1)
    assert close(y, model(x, u, q, mask), 1e-5)


@pytest.mark.parametrize("kind", STREAMING)
def test_streaming_models_reduce_their_sums(kind: str) -> None:
    """Points on two processes are all points, if each adds the sums of the other."""
    model, (x, u, q) = small(kind, CLOUD_SPEC, elsewhere=True), inputs()
    seen = []
    model.reduce_with(lambda sums: seen.append(sums) or sums)
    first = model(x[:, :25], u[:, :25], q)
    model.reduce_with(lambda sums: sums.merge(seen[0]))
    both = model(x[:, 25:], u[:, 25:], q)
    model.reduce_with(None)
    whole = model(x, u, q)
    assert close(both, whole, 1e-5) and not close(first, whole, 1e-3)


@EVERY_MODEL
def test_a_batch_is_passed_with_parameters_and_weights(kind: str) -> None:
    """Weights only if asked for, and only to models that read them."""
    grid = GRID if kind in NEED_GRID else None
    model, (x, u, _) = small(kind, Spec(2, 3, 3, grid)), inputs()
    parameters = torch.tensor([[1.0, -2.0], [0.5, 3.0]])
    weights = torch.rand(1, 60, generator=torch.Generator().manual_seed(3))
    mask = None if model.needs_grid else mask_of_lengths(60, 23)
    batch = Batch(x, u, x, mask=mask, parameters=parameters, weights=weights)
    joined = torch.cat((u, parameters[:, None].expand(2, 60, 2)), dim=-1)
    plain = model(x, joined, x, mask)
    assert torch.equal(apply_model(model, batch, weighted=False), plain)
    weighted = apply_model(model, batch, weighted=True)
    if model.reads_weights:
        assert torch.equal(weighted, model(x, joined, x, mask, weights=weights))
        assert not close(weighted, plain, 1e-3)
    else:
        assert torch.equal(weighted, plain)
    without = replace(batch, weights=None)
    assert torch.equal(apply_model(model, without, weighted=True), plain)


@EVERY_MODEL
def test_models_that_read_weights_count_points_by_them(kind: str) -> None:
    spec = GRID_SPEC if kind in NEED_GRID else CLOUD_SPEC
    model, (x, u, q) = small(kind, spec), inputs()
    if not model.reads_weights:
        with pytest.raises(TypeError, match="weights"):
            model(x, u, q, weights=torch.ones(2, 60))
        return
    times = torch.tensor([2] * 10 + [1] * 30 + [0] * 20)
    repeated = (torch.repeat_interleave(v, times, dim=1) for v in (x, u))
    assert close(model(x, u, q, weights=times.float().expand(2, 60)), model(*repeated, q), 1e-5)


def test_gnot_reads_a_mask_of_its_queries_only_where_they_are_the_observations() -> None:
    model, (x, u, q) = build(GNOT_ONE), inputs(q=60)
    mask = mask_of_lengths(60, 23)
    changed = torch.where(mask[..., None], x, x + 1.0)
    assert close(model(changed, u, changed, mask)[mask], model(x, u, x, mask)[mask], 1e-5)
    other = torch.where(mask[..., None], q, q + 1.0)
    assert not close(model(x, u, other, mask)[mask], model(x, u, q, mask)[mask], 1e-3)
