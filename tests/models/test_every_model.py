"""Properties of every model, or of all with some capability. Others are in the models' files."""

from __future__ import annotations

from dataclasses import fields

import pytest
import torch
from forms import EVERY_FORM_WITH_AND_WITHOUT_MASK, FORMS, Form, every_form
from small_models import (
    all_close,
    build,
    close,
    inputs,
    make_without_memory,
    mask_of_lengths,
    shallow,
    value_and_gradient,
)

from lno.models import MODELS, LatentGrid, ModelConfig
from lno.training.precision import matmul_precision


def test_no_model_is_forgotten() -> None:
    assert {type(form.config) for form in FORMS.values()} == {kind for _, kind in MODELS.values()}


@every_form()
def test_values_matter(form: Form) -> None:
    """Were observations not read, the invariances below would hold as well."""
    model, (x, u, q) = build(form.config), inputs()
    assert not close(form.ask(model, x, u + 1, q), form.ask(model, x, u, q), 1e-3)


@every_form()
def test_positions_matter(form: Form) -> None:
    model, (x, u, q) = build(form.config), inputs()
    same = close(form.ask(model, x + 1, u, q), form.ask(model, x, u, q), 1e-3)
    assert same != form.reads_positions


@every_form(needs_grid=False)
def test_all_observations_matter(form: Form) -> None:
    model, (x, u, q) = build(form.config), inputs()
    half = form.ask(model, x[:, :30], u[:, :30], q)
    assert not close(half, form.ask(model, x, u, q)[:, : half.shape[1]], 1e-3)


@every_form(needs_grid=False, orders_points=False)
@pytest.mark.parametrize("masked", [False, True])
def test_the_order_of_observations_does_not_matter(form: Form, masked: bool) -> None:
    model, (x, u, q) = build(form.config), inputs()
    order = torch.randperm(60, generator=torch.Generator().manual_seed(2))
    mask = mask_of_lengths(60, 23) if masked else None
    mixed_mask = None if mask is None else mask[:, order]
    mixed = form.ask(model, x[:, order], u[:, order], q, mixed_mask)
    expected = form.ask(model, x, u, q, mask)
    if not form.can("predicts_anywhere"):  # then predictions come in the order of observations
        expected = expected[:, order]
    assert close(mixed, expected, 1e-5)


@every_form(predicts_anywhere=True)
def test_predictions_come_in_the_order_of_queries(form: Form) -> None:
    model, (x, u, q) = build(form.config), inputs()
    order = torch.randperm(40, generator=torch.Generator().manual_seed(2))
    assert close(model(x, u, q[:, order]), model(x, u, q)[:, order], 1e-5)


@every_form(queries_interact=True)
def test_queries_influence_each_other(form: Form) -> None:
    model, (x, u, q) = build(form.config), inputs()
    assert not close(model(x, u, q[:, 5:9]), model(x, u, q)[:, 5:9], 1e-3)


@every_form(predicts_anywhere=True, queries_interact=False)
def test_queries_do_not_influence_each_other(form: Form) -> None:
    model, (x, u, q) = build(form.config), inputs()
    assert close(model(x, u, q[:, 5:9]), model(x, u, q)[:, 5:9], 1e-5)


@every_form(needs_grid=False, sums_points=False)
def test_observing_everything_twice_changes_nothing(form: Form) -> None:
    """Sums over points are means: their number does not scale the predictions."""
    model, (x, u, q) = build(form.config), inputs()
    once = form.ask(model, x, u, q)
    twice = form.ask(model, torch.cat((x, x), 1), torch.cat((u, u), 1), q)
    assert close(twice[:, : once.shape[1]], once, 1e-5)


@every_form(needs_grid=False, samples_interact=False)
def test_a_mask_without_padding_changes_nothing(form: Form) -> None:
    model, (x, u, q) = build(form.config, torch.float64), inputs(dtype=torch.float64)
    masked = form.ask(model, x, u, q, mask_of_lengths(60, 60))
    assert close(masked, form.ask(model, x, u, q), 1e-12)


@every_form(needs_grid=False, samples_interact=False)
@pytest.mark.parametrize("lengths", [(60, 1), (23, 60), (59, 2)])
def test_padded_and_masked_batches_equal_single_samples(
    form: Form, lengths: tuple[int, int]
) -> None:
    model, (x, u, q) = build(form.config), inputs()
    mask = mask_of_lengths(*lengths)
    junk = 1e3 * torch.randn(2, 60, 2, generator=torch.Generator().manual_seed(3))
    padded_x = torch.where(mask[..., None], x, junk)
    padded_u = torch.where(mask[..., None], u, junk[..., :1])
    together = form.ask(model, padded_x, padded_u, q, mask)
    assert torch.isfinite(together).all()
    for k, n in enumerate(lengths):
        alone = form.ask(model, x[k : k + 1, :n], u[k : k + 1, :n], q[k : k + 1])
        assert close(together[k : k + 1, : alone.shape[1]], alone, 1e-5)


@every_form(needs_grid=False, samples_interact=False)
@pytest.mark.parametrize("lengths", [(60, 1), (23, 60)])
def test_padded_batches_equal_single_samples_at_the_observed_points(
    form: Form, lengths: tuple[int, int]
) -> None:
    """Where the queries are the observations, the mask is theirs as well."""
    model, (x, u, _) = build(form.config), inputs()
    mask = mask_of_lengths(*lengths)
    junk = 1e3 * torch.randn(2, 60, 2, generator=torch.Generator().manual_seed(3))
    padded = torch.where(mask[..., None], x, junk)
    together = model(padded, torch.where(mask[..., None], u, junk[..., :1]), padded, mask)
    for k, n in enumerate(lengths):
        alone_x = x[k : k + 1, :n]
        alone = model(alone_x, u[k : k + 1, :n], alone_x)
        assert close(together[k : k + 1, :n], alone, 1e-5)


@every_form(needs_grid=False, samples_interact=False)
def test_masked_observations_influence_neither_values_nor_gradients(form: Form) -> None:
    model, (x, u, q) = build(form.config), inputs()
    mask = torch.rand(2, 60, generator=torch.Generator().manual_seed(4)) < 0.5
    results = []
    for scale in (0.0, 1e3):
        changed_x = torch.where(mask[..., None], x, scale * x).requires_grad_()
        changed_u = torch.where(mask[..., None], u, scale * u).requires_grad_()
        y = form.ask(model, changed_x, changed_u, q, mask)
        if not form.can("predicts_anywhere"):  # then padding has predictions as well, of no use
            y = y[mask]
        results.append(value_and_gradient(model, y))
        assert not bool(changed_x.grad[~mask].any()) and not bool(changed_u.grad[~mask].any())
        assert bool(changed_u.grad[mask].all())
    assert torch.equal(results[0][0], results[1][0])
    assert all_close(*results, tolerance=1e-5)


@EVERY_FORM_WITH_AND_WITHOUT_MASK
def test_shared_positions_equal_repeated_ones_in_value_and_gradient(
    form: Form, masked: bool
) -> None:
    model, (x, u, q) = build(form.config, torch.float64), inputs(dtype=torch.float64)
    mask = mask_of_lengths(60, 23) if masked else None
    results = []
    for samples in (1, 2):
        y = form.ask(model, x[:1].repeat(samples, 1, 1), u, q[:1].repeat(samples, 1, 1), mask)
        results.append(value_and_gradient(model, y))
    assert all_close(*results, tolerance=1e-12)


@every_form()
def test_passing_x_as_x_query_changes_nothing_but_the_work(form: Form) -> None:
    model, (x, u, _) = build(form.config), inputs()
    assert close(model(x, u, x), model(x, u, x.clone()), 1e-6)


@every_form(samples_interact=False)
def test_positions_alone_are_enough(form: Form) -> None:
    model, (x, u, q) = build(form.config, in_channels=0), inputs(i=0, b=3)
    own, shared = form.ask(model, x, u, q), form.ask(model, x[:1], u, q[:1])
    assert own.shape == shared.shape == (3, 40 if form.can("predicts_anywhere") else 60, 3)
    # Without values, samples at the same positions have the same prediction.
    assert close(shared[2], own[0], 1e-5)


@every_form(predicts_anywhere=True)
def test_no_queries_have_no_predictions(form: Form) -> None:
    model, (x, u, q) = build(form.config), inputs()
    assert model(x, u, q[:, :0]).shape == (2, 0, 3)


@every_form()
def test_inputs_in_double_precision_are_read_in_that_of_the_weights(form: Form) -> None:
    model, (x, u, q) = build(form.config), inputs()
    y = form.ask(model, x, u, q)
    for values in (u, u.double()):
        double = form.ask(model, x.double(), values, q.double())
        assert double.dtype == torch.float32 and close(double, y, 1e-4)


@every_form(needs_grid=False)
def test_observations_may_all_be_at_one_place(form: Form) -> None:
    model, (x, u, q) = build(form.config), inputs()
    for extent in (0.0, 1e-5):
        there = x[:, :1] + extent * x[:, :5]
        assert torch.isfinite(form.ask(model, there, u[:, :5], q)).all()


@every_form(predicts_anywhere=True)
@pytest.mark.parametrize("shift", [3e3, 1e5, 1e9])
def test_predictions_far_from_all_observations_are_finite(form: Form, shift: float) -> None:
    model, (x, u, q) = build(form.config), inputs()
    assert torch.isfinite(model(x, u, q + shift)).all()


@every_form(streams=True)
def test_samples_without_observations_that_count_have_finite_predictions(form: Form) -> None:
    model, (x, u, q) = build(form.config), inputs()
    counts = torch.ones(2, 60)
    counts[1] = 0
    assert torch.isfinite(model(x[:, :0], u[:, :0], q)).all()
    for none in ({"weights": counts}, {"mask": counts > 0}):
        y = model(x, u, q, **none)
        assert torch.isfinite(y).all() and close(y[:1], model(x[:1], u[:1], q[:1]), 1e-5)


@EVERY_FORM_WITH_AND_WITHOUT_MASK
def test_one_graph_holds_the_whole_model(form: Form, masked: bool) -> None:
    if form.alike:
        return
    model, (x, u, q) = build(shallow(form.config)), inputs()
    mask = mask_of_lengths(60, 23) if masked else None
    torch.compiler.reset()  # torch compiles one function only so many times
    compiled = torch.compile(model, fullgraph=True, backend="eager")
    assert close(form.ask(compiled, x, u, q, mask), form.ask(model, x, u, q, mask), 1e-5)


@every_form()
def test_weights_are_the_whole_state(form: Form) -> None:
    """A model built without memory and given weights computes the same: model files rely on it."""
    model, (x, u, q) = build(form.config), inputs()
    empty = make_without_memory(model.spec, form.config)
    empty.load_state_dict(model.state_dict(), assign=True)
    empty.eval()
    assert torch.equal(form.ask(empty, x, u, q), form.ask(model, x, u, q))


@every_form()
@pytest.mark.parametrize("training", [False, True])
def test_buffers_change_in_training_exactly_if_declared(form: Form, training: bool) -> None:
    """In place, and not in evaluation: compiled training steps hold on to these tensors."""
    model, (x, u, q) = build(form.config).train(training), inputs()
    before = {name: (b.data_ptr(), b.clone()) for name, b in model.named_buffers()}
    form.ask(model, x, u + 1, q).square().mean().backward()
    after = dict(model.named_buffers())
    assert all(after[name].data_ptr() == place for name, (place, _) in before.items())
    changed = any(not torch.equal(after[name], value) for name, (_, value) in before.items())
    assert changed == (training and model.keeps_statistics)


@every_form()
def test_every_weight_is_trained(form: Form) -> None:
    model, (x, u, q) = build(form.config, torch.float64), inputs(dtype=torch.float64)
    form.ask(model, x, u, q).square().mean().backward()
    slopes = {
        name: 0.0 if p.grad is None else float(p.grad.abs().max())
        for name, p in model.named_parameters()
    }
    rounding = 1e-12 * max(slopes.values())
    assert {name for name, slope in slopes.items() if slope <= rounding} == form.idle


@EVERY_FORM_WITH_AND_WITHOUT_MASK
def test_predictions_in_half_precision_are_float32_and_near(form: Form, masked: bool) -> None:
    model, (x, u, q) = build(form.config), inputs()
    mask = mask_of_lengths(60, 23) if masked else None
    full = form.ask(model, x, u, q, mask)
    with torch.autocast("cpu", torch.bfloat16):
        half = form.ask(model, x, u, q, mask)
    assert half.dtype == torch.float32
    assert close(half, full, 0.05)


@pytest.mark.gpu
@EVERY_FORM_WITH_AND_WITHOUT_MASK
def test_gpu_equals_cpu(form: Form, masked: bool) -> None:
    n = 60 if form.can("needs_grid") else 5000
    model, (x, u, q) = build(form.config), inputs(n, q=3000)
    mask = mask_of_lengths(n, 23, n=n) if masked else None
    expected = form.ask(model, x, u, q, mask)
    model, x, u, q = model.cuda(), x.cuda(), u.cuda(), q.cuda()
    mask = None if mask is None else mask.cuda()
    with matmul_precision("fp32"):  # torch's own default takes convolutions in tf32
        assert close(form.ask(model, x, u, q, mask).cpu(), expected, 1e-4)


@pytest.mark.parametrize(
    ("config", "size"),
    [
        pytest.param(config, field.name, id=f"{name} {field.name}")
        for name, (_, config) in (*MODELS.items(), ("latent grid", (None, LatentGrid)))
        for field in fields(config)
        if field.type in (int, "int")
    ],
)
def test_impossible_sizes_are_errors(config: type, size: str) -> None:
    least, _ = {**ModelConfig.limits, **config.limits}.get(size, (1, None))
    for value in (least - 1, 2.5, True, 10**9):
        with pytest.raises(ValueError, match=f"{size} must be a whole number from {least} to"):
            config(**{size: value})


@pytest.mark.parametrize(
    "name", [k for k, (_, config) in MODELS.items() if "heads" in config.__dataclass_fields__]
)
def test_heads_divide_the_width(name: str) -> None:
    _, config = MODELS[name]
    with pytest.raises(ValueError, match=f"heads must divide the width {config().width}, got 5"):
        config(heads=5)
