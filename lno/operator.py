"""`Operator`: a trained model with everything that is needed to use it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from time import perf_counter
from typing import Any

import torch
from jaxtyping import Bool
from torch import Tensor

from lno import evaluation
from lno.conditioning import learn_covariance
from lno.config import require_count, require_range
from lno.data import Batch, Fields, Spec
from lno.data.checks import as_shape, require_flag, require_instance, require_path
from lno.data.climatology import Background
from lno.data.labels import Labels
from lno.data.normalize import Normalizers
from lno.data.symmetry import Symmetry
from lno.evaluation import Errors
from lno.kernel_methods.covariance import Covariance
from lno.models import Model
from lno.operator_output import OperatorOutput
from lno.prediction import Prediction, as_trained, observations, predict_batch, predict_groups
from lno.scores import Score
from lno.tasks import Task
from lno.text import visible
from lno.training.inputs import check_arguments
from lno.training.recipe import Recipe
from lno.training.run import provenance, run
from lno.training.setup import set_up
from lno.trust import Reference, Trust, calibrate, distribution, predict_bounded, warn_of_few_points

# Arguments of `Operator.fit` that do not decide what is trained, but how the run goes.
RUN_ONLY = ["conditional", "progress", "folder", "resume", "minutes", "pause_after", "tensorboard"]


@dataclass(repr=False)
class Operator(OperatorOutput):
    """A learned map from observed values to values at any query points, in physical units.

    Make one with `fit` or `load`. With several members, trained alike from different seeds, it
    predicts their mean, and their spread estimates the uncertainty.

    Args:
        members: the models.
        kind: the name of their class in `lno.models.MODELS`.
        task: what it was trained for.
        normalizers: fitted to the training data.
        labels: what its inputs and outputs mean.
        conditional: predictions are conditioned on the observations (`lno.kernel_methods.krige`).
        weighted: points are weighted by the size that they represent.
        query_set: the number of query points per call, for models whose predictions depend on the
            other query points; None: all.
        provenance: how it was trained.
        trust: bounds and out-of-distribution scores; see `calibrated`.
        background: what predictions add to: a climatology, the name of an input, or "" if it comes
            with the data; None: nothing.
        covariance: of the residuals of a conditional operator; None: the most likely one of every
            sample.

    >>> import numpy as np
    >>> t = np.linspace(0, 1, 20)[:, None]
    >>> slope = np.linspace(-1, 1, 12)[:, None, None]
    >>> data = Fields(t, u=slope * t, y=slope * t**2)
    >>> op = Operator.fit(data, epochs=2, config={"width": 16, "latents": 8}, progress=False)
    >>> op.predict(t[:5], 0.3 * t[:5], x_query=[[0.25], [0.5]]).shape
    (2, 1)
    """

    members: list[Model]
    kind: str
    task: Task
    normalizers: Normalizers
    labels: Labels
    conditional: bool = False
    weighted: bool = False
    query_set: int | None = None
    provenance: dict[str, Any] = field(default_factory=dict)
    trust: Trust = field(default_factory=Trust)
    background: Background = None
    covariance: Covariance | None = None

    def __post_init__(self) -> None:
        if self.conditional and not self.task.observes_outputs:
            raise ValueError(
                "conditional: only a field that is itself observed at some points can be "
                f"conditioned on the observations, not {type(self.task).__name__}; use Completion"
            )
        self.trust.require_fit(self)

    @classmethod
    def fit(
        cls,
        train_data: Fields,
        *,
        epochs: int | None = None,
        task: Task | None = None,
        model: str | None = None,
        config: Any = None,
        recipe: Recipe | Mapping[str, Any] | None = None,
        validation: float | Fields = 0.1,
        members: int = 1,
        init: Operator | None = None,
        conditional: bool = False,
        symmetries: Sequence[Symmetry] = (),
        device: str = "auto",
        seed: int = 0,
        precision: str = "auto",
        progress: bool = True,
        folder: str | Path | None = None,
        resume: bool = False,
        minutes: float | None = None,
        steps: int | None = None,
        pause_after: float | None = None,
        split: str = "samples",
        tensorboard: bool = False,
        early_stop: bool = False,
        background: str | None = None,
    ) -> Operator:
        """Train an operator.

        Args:
            train_data: samples with outputs.
            epochs: passes over them; overrides the recipe's.
            task: what is predicted from what; default: the outputs from the observed values.
            model: a name in `lno.models.MODELS`; None: the rule for defaults chooses the model and
                its sizes for these data (`lno.training.defaults`).
            config: the model's config, or a mapping of keys that differ from its defaults; without
                a model, LNO's.
            recipe: how to train, or a mapping of keys that differ from what the rule chooses.
            validation: the share of samples held out for validation, the same for every seed; or
                a validation set.
            members: size of the ensemble, the k-th member from seed + k. Each equals, to rounding,
                the model trained alone with its seed; together they cost less.
            init: an operator to fine-tune: its weights, normalisers, model and task are taken over.
            conditional: condition predictions on the observations; for `Completion`.
            symmetries: of the problem, like `Darcy.symmetries`, for data augmentation with randomly
                transformed samples.
            device: "auto", "cpu", "cuda", "mps".
            seed: of the initial weights, the order of samples and all other random draws.
            precision: "fp32", "tf32" or "mixed"; "auto" is tf32 on CUDA, fp32 elsewhere.
            progress: show a progress bar.
            folder: where to keep checkpoints and `metrics.jsonl`; None: nowhere.
            resume: continue from the last checkpoint in `folder`, bit-for-bit.
            minutes: a time budget instead of epochs: the speed is measured, and the learning rate
                schedule is fitted to the budget.
            steps: the number of steps, instead of epochs.
            pause_after: pause after so many minutes, ready to resume.
            split: what processes under torchrun share: "samples" of a batch, or "points" of a
                sample.
            tensorboard: write the learning curve into `folder`/tensorboard as well.
            early_stop: keep the weights with the lowest validation error, and stop when it has not
                fallen for a long time.
            background: "climatology:NAME", the mean of the training samples by a parameter or a
                coordinate, or the name of an input that is a first guess of the outputs. The
                operator learns the difference and adds the background automatically.

        With a folder, Ctrl-C and SIGTERM finish the step, save and return; `finished` then says
        whether the run is complete.
        """
        given = {k: v for k, v in locals().items() if k != "cls"}
        example = "a trained operator, like Operator.load('model.safetensors')"
        require_instance("init", given["init"], Operator | None, example)
        check_arguments(**{k: v for k, v in given.items() if k != "init"})
        setup = set_up(**{k: v for k, v in given.items() if k not in RUN_ONLY})
        training, kind, used = setup.training, setup.kind, setup.used
        began = perf_counter()
        finished = run(
            training, kind, used.digest, folder, resume, minutes, pause_after, progress, tensorboard
        )
        paused = pause_after is not None and perf_counter() - began >= 60 * pause_after
        stopped = "" if finished else "paused" if paused else "interrupted"
        recipe, nets = training.recipe, list(training.end())
        made = cls(
            nets,
            kind,
            training.task,
            training.normalizers,
            Labels.of(training.data, training.task.observes_outputs),
            conditional or bool(init and init.conditional),
            recipe.weighted,
            recipe.queries if nets[0].queries_interact else None,
            provenance(training, used, stopped, init.provenance if init else None),
            background=setup.background,
        )
        if made.conditional:
            learned = learn_covariance(made, training.data, training.validation)
            made = replace(made, covariance=learned)
        return replace(made, trust=Trust(Reference.of(made, training.data)))

    def __repr__(self) -> str:
        names = (", ".join(self.labels.names[key]) for key in ("u", "x", "y"))
        u, x, y = (visible(name or "positions") for name in names)
        if numbers := self.labels.names.get("parameters"):
            x += visible(f", parameters {', '.join(numbers)}")
        each = f"{len(self.members)} × " if len(self.members) > 1 else ""
        weights = self.parameters // len(self.members)
        return f"Operator({each}{self.kind} with {weights:,} weights: {u} of {x} → {y})"

    @property
    def finished(self) -> bool:
        """Whether the training that made it ran to its end."""
        return bool(self.provenance.get("finished", True))

    @property
    def model(self) -> Model:
        """The model; the first one where there are several."""
        return self.members[0]

    @property
    def device(self) -> torch.device:
        """Where the model is."""
        return next(self.model.parameters()).device

    @property
    def parameters(self) -> int:
        """The number of weights, of all members together."""
        return sum(p.numel() for model in self.members for p in model.parameters())

    def member(self, k: int) -> Operator:
        """The operator of the k-th member alone; it needs its own calibration."""
        require_instance("k", k, int, "the number of a member")
        if not 0 <= k < len(self.members):
            raise IndexError(f"no member {k}: this operator has {len(self.members)}, from 0 on")
        one = self.members[k]
        return self if len(self.members) == 1 else replace(self, members=[one], trust=Trust())

    def on_grid(self, grid: tuple[int, ...]) -> Operator:
        """The same operator for data on another grid; models that need none do not change."""
        shape = as_shape("grid", grid)
        read = self.task.model_spec(Spec(len(shape), 0, 0, shape)).grid or ()
        return replace(self, members=[model.on_grid(read) for model in self.members])

    def predict(
        self,
        x: Any,
        u: Any = None,
        x_query: Any = None,
        *,
        parameters: Any = None,
        weights: Any = None,
        background: Any = None,
        noise: float = 0.0,
        bounds: float | None = None,
    ) -> Any:
        """Predict at `x_query` what the values `u` at `x` imply.

        Memory is bounded for models that stream (`Model.streams`), however many points there are;
        other models take whole samples.

        Args:
            x: positions (n, d) of one sample, (b, n, d) of several, or a list of arrays (n_k, d);
                or `Fields`, which hold everything.
            u: values (n, i), (b, n, i) or a list; None where the operator reads positions only.
            x_query: positions (q, d) for all samples, (b, q, d) or a list; None: the same as `x`.
            parameters: of each sample, (p,) or (b, p), where the operator was trained with some.
            weights: the sizes that observed points represent, (n,), (b, n) or a list; for models
                that read them. Those of `Fields` count where the operator is `weighted`.
            background: the known first guess at `x_query`, (q, o), (b, q, o) or a list, where the
                operator was trained with one.
            noise: the standard deviation of noise in u, for conditional operators: the prediction
                then smooths the observations instead of passing through them.
            bounds: a level like 0.9, for operators that are `calibrated` for it.

        Returns:
            Values (q, o), (b, q, o) or a list, as the input came; NumPy for NumPy, torch for torch.
            With bounds, a `BoundedPrediction`: `prediction`, `lower` and `upper` in this form, and
            the out-of-distribution `scores` of each sample. On average over new samples of the
            trained kind, at least this share of the points lies inside, of each channel.
        """
        given = observations(self, x, u, x_query, parameters, weights, background)
        require_range("noise", noise, 0.0, 1e30)
        if noise and not self.conditional:
            raise ValueError(
                "noise: only a conditional operator takes the errors of u into account"
            )
        if noise and bounds is not None:
            raise ValueError(
                "noise: bounds are calibrated for exact observations; pass one of both"
            )
        warn_of_few_points(self, given.fields)
        if bounds is not None:
            return predict_bounded(given.reader(self), given, bounds)
        found = predict_groups(given.reader(self), given.fields, float(noise))
        return given.like([prediction.mean() for _, prediction in found])

    def distribution(
        self, x: Any, u: Any = None, x_query: Any = None, **others: Any
    ) -> list[tuple[Score, ...]]:
        """Out-of-distribution scores of each sample, in a list.

        A `Score` has a value and a threshold; one above it flags the sample as out of distribution.
        There are scores for inputs, parameters, positions, points (their number and spacing) and
        the latent tokens of models that stream. Without calibration there are none.

        Args:
            x: as in `predict`, and so are u and x_query.
            u: values at x.
            x_query: query points.
            others: parameters, weights and background, as in `predict`.
        """
        given = observations(self, x, u, x_query, **others)
        return distribution(given.reader(self), given.fields)

    def calibrated(self, held_out: Fields, level: float = 0.9) -> Operator:
        """The same operator with bounds and out-of-distribution scores, which `save` keeps.

        Args:
            held_out: samples with outputs that it was not trained on, at least 9 for level 0.9.
            level: on average over new samples of this kind, at least this share of the points lies
                inside the bounds, of each channel (`lno.calibration`).
        """
        require_instance("held_out", held_out, Fields, "samples with outputs, Fields(x, u, y=...)")
        require_range("level", level, 0.0, 1.0)
        return replace(self, trust=calibrate(self, as_trained(self, held_out), level))

    def predict_batch(
        self, batch: Batch, noise: float = 0.0, deviation: bool = False
    ) -> Prediction:
        """The prediction of every member for a batch in physical units; see `lno.prediction`."""
        return predict_batch(self, batch, noise, deviation)

    def evaluate(
        self, test: Fields, *, task: Task | None = None, seed: int = 0
    ) -> dict[str, float]:
        """Mean errors over the samples of `test`, in physical units.

        Args:
            test: samples with outputs.
            task: decides what is observed, at another ratio, say; default: the operator's own.
            seed: of the random draws of the task.

        Returns:
            `relative_l2`, `relative_mae` and `mse`.
        """
        return self.errors(test, task=task, seed=seed).means()

    def errors(
        self,
        test: Fields,
        *,
        task: Task | None = None,
        seed: int = 0,
        where: Bool[Tensor, " q"] | None = None,
    ) -> Errors:
        """Like `evaluate`, sample by sample; `where` says which query points count."""
        require_instance("test", test, Fields, "samples with outputs, Fields(x, u, y=...)")
        require_instance("task", task, Task | None, "a task like lno.Steady(), or None")
        require_count("seed", seed, 2**63, least=0)
        if where is not None and not (isinstance(where, Tensor) and where.dtype == torch.bool):
            raise TypeError(f"where: expected a tensor (q,) of True and False, got {where!r:.80}")
        task = task or self.task
        if test.y is None:
            raise ValueError("the data have no outputs y to compare with")
        self.labels.compare(test, "x", "y")

        def predict(batch: Batch) -> Tensor:
            self.labels.require_batch(batch)
            return self.predict_batch(batch).mean()

        return evaluation.evaluate(
            predict,
            task.prepare(as_trained(self, test)),
            task,
            seed=seed,
            where=where,
            weighted=self.weighted,
        )

    def save(self, path: str | Path, *, half: bool = False) -> None:
        """Write one `.safetensors` file that holds everything, atomically.

        Args:
            path: the file.
            half: store the weights in float16, half the size; computations stay in float32. Check
                the error of the loaded operator before you rely on it.
        """
        from lno import operator_file

        require_path("path", path)
        require_flag("half", half)
        operator_file.save(self, path, half)

    @staticmethod
    def load(path: str | Path, device: str = "auto") -> Operator:
        """Read a file of `save`."""
        from lno import operator_file

        require_path("path", path)
        return operator_file.load(path, device)
