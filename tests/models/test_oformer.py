from __future__ import annotations

import pytest
import torch
from small_models import OFORMER, OFORMER_PLAIN, build, close, inputs, make

from lno import Spec
from lno.models import OFormer, OFormerConfig
from lno.models.oformer import rotate


@pytest.mark.parametrize("coordinates", [1, 2, 3])
def test_rotations_make_products_depend_on_distances_only(coordinates: int) -> None:
    """The product of rotated queries and keys does not change if both move."""
    generator = torch.Generator().manual_seed(0)
    q, k = (torch.randn(2, 5, 3, 20, generator=generator, dtype=torch.float64) for _ in range(2))
    x, y = (torch.rand(2, 5, coordinates, generator=generator).double() for _ in range(2))
    shift = torch.tensor([0.3, -1.7, 0.9], dtype=torch.float64)[:coordinates]

    def products(by: torch.Tensor) -> torch.Tensor:
        return (rotate(q, x + by, 40.0) * rotate(k, y + by, 40.0)).sum(dim=-1)

    assert close(products(shift), products(0 * shift), 1e-12)
    assert not close(rotate(q, x + shift, 40.0), rotate(q, x, 40.0), 1e-2)
    assert close(rotate(q, x, 40.0).norm(dim=-1), q.norm(dim=-1), 1e-12)
    assert torch.equal(rotate(q, 0 * x, 40.0), q)


def test_each_coordinate_rotates_its_own_features() -> None:
    v, x = torch.ones(1, 1, 1, 12), torch.tensor([[[0.5, 0.0, 0.0]]])
    changed = rotate(v, x, 3.0)[0, 0, 0] != 1
    assert changed.tolist() == [True] * 4 + [False] * 8


def test_more_coordinates_than_pairs_of_features_are_not_rotated() -> None:
    spec, config = Spec(4, 1, 1), OFormerConfig(width=4, latent=4, layers=1, heads=1)
    x, u = torch.rand(2, 9, 4), torch.rand(2, 9, 1)
    assert torch.isfinite(make(spec, config)(x, u, x)).all()


@pytest.mark.parametrize("config", [OFORMER, OFORMER_PLAIN], ids=["norm", "plain"])
def test_time_is_an_ordinary_channel(config: OFormerConfig) -> None:
    assert OFormer.embeds_time and OFormer.with_time(config) == config
    model, (x, u, q) = build(config, in_channels=2), inputs(i=2)
    later = u.clone()
    later[..., -1] += 1
    assert not close(model(x, later, q), model(x, u, q), 1e-3)


def test_frequencies_of_queries_are_not_trained() -> None:
    model = build(OFORMER)
    assert "frequencies" in model.state_dict() and not model.keeps_statistics
    assert "frequencies" not in dict(model.named_parameters())
    x, u, q = inputs()
    before = model(x, u, q)
    model.frequencies.mul_(2)
    assert not close(model(x, u, q), before, 1e-3)


def test_initial_queries_are_rotations_and_the_identity() -> None:
    torch.manual_seed(0)
    model = OFormer(Spec(2, 1, 1), OFORMER)
    heads = [*model.blocks[1].attention.query.weight.split(16)]
    heads += [*model.cross_attention.query.weight.split(24)]
    heads += [*model.cross_attention.key_value.weight.split(24)]
    assert len(heads) == 2 + 4 + 8
    for head in heads:
        rotation = len(head) * head.detach() - torch.eye(len(head))
        assert torch.allclose(rotation @ rotation.T, torch.eye(len(head)), atol=1e-5)
    keys = model.blocks[1].attention.key_value.weight.detach()  # torch's default
    assert float(keys.std()) == pytest.approx(16**-0.5 / 3**0.5, rel=0.1)


def test_the_default_resolution_is_that_of_the_grid() -> None:
    assert OFormer.default_config(Spec(2, 1, 1, (85, 40))).resolution == 85
    assert OFormer.default_config(Spec(2, 1, 1)).resolution == 141
