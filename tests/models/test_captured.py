"""What a training step on a GPU asks of a model: it is compiled as a whole and captured in a graph.

So no forward pass may look at values, for which a GPU would have to wait, and none may leave the
compiler's graph.
"""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import torch
from forms import EVERY_FORM_WITH_AND_WITHOUT_MASK, Form, every_form
from small_models import GRID, initial, inputs, make, mask_of_lengths, shallow
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.func import functional_call

from lno import Fields, Recipe, Steady
from lno.training.inputs import model_spec
from lno.training.loop import next_batches
from lno.training.samples import Samples
from lno.training.state import Training
from lno.training.step import Step


@EVERY_FORM_WITH_AND_WITHOUT_MASK
def test_no_form_looks_at_values(form: Form, masked: bool) -> None:
    """These tensors have none. In mixed precision, gradients are those of float32 weights."""
    model, mode = initial(shallow(form.config)).train(), FakeTensorMode()
    own = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    state = {name: mode.from_tensor(value) for name, value in own.items()}
    given, elsewhere = (*inputs(), mask_of_lengths(60, 41)), form.can("predicts_anywhere")
    with mode, torch.autocast("cpu", torch.bfloat16):
        x, u, x_query, mask = map(mode.from_tensor, given)
        arguments = (x, u, x_query if elsewhere else x, mask if masked else None)
        y = functional_call(model, state, arguments)
        weights = [state[name] for name, _ in model.named_parameters()]
        gradients = torch.autograd.grad(y.float().sum(), weights, allow_unused=True)
    assert y.dtype == torch.float32
    assert {g.dtype for g in gradients if g is not None} == {torch.float32}


@every_form(alike=False)
def test_every_form_is_one_graph(form: Form) -> None:
    model, (x, u, x_query) = initial(shallow(form.config)).train(), inputs()
    torch._dynamo.reset()
    traced = torch.compile(model, dynamic=False, fullgraph=True, backend="eager")
    assert form.ask(traced, x, u, x_query).shape[-1] == 3


@pytest.mark.gpu
@every_form()
def test_a_captured_step_of_every_form_is_the_eager_one(form: Form) -> None:
    random = np.random.default_rng(0)
    x, values = random.uniform(size=(60, 2)), random.normal(size=(2, 8, 60, 1))
    data, task = Fields(x, values[0], y=values[1], grid=GRID), Steady()
    scale, losses = task.normalizers(data), []
    for device in (torch.device("cpu"), torch.device("cuda")):
        torch.manual_seed(0)
        model = make(model_spec(data, scale), form.config).to(device)
        recipe = Recipe(epochs=3, batch=4, learning_rate=1e-5)
        training = Training([model], task, scale, recipe, data, None, device, 0, "fp32")
        samples, step = Samples(data, scale, device), Step(training)
        with warnings.catch_warnings():
            warnings.filterwarnings("error", "training continues")  # without a graph
            for _ in range(6):
                losses.append(step(*next_batches(training, samples)).item())
                training.step += 1
    assert losses[6:] == pytest.approx(losses[:6], rel=1e-3)
