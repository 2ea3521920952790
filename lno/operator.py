"""`Operator`: a trained model with everything that is needed to use it."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from lno.config import from_dict, require_count, require_range, to_dict
from lno.data import Batch, Fields, Spec, columns
from lno.data.labels import Labels
from lno.data.normalize import Normalizers
from lno.data.symmetry import Symmetry
from lno.metrics import METRICS
from lno.models import LNO, build_model
from lno.models.streamed import slices
from lno.tasks import Steady, Task
from lno.training.device import hardware, pick_device
from lno.training.distributed import join
from lno.training.given import hold_back, require_alike, require_inputs, require_json
from lno.training.loop import curve_rows
from lno.training.precision import matrix_products, pick_precision
from lno.training.recipe import Recipe
from lno.training.run import run
from lno.training.state import Training
from lno.version import __version__

LEAST_WEIGHT = -1e30  # its exponential is zero, and nothing becomes NaN
CHUNK = 16_384  # points in flight at once: about 200 MB for the largest model of the paper


@dataclass(repr=False)
class Operator:
    """A learned map from observed values to values anywhere, in physical units.

    Make one with `fit` or `load`. With several members, trained alike from different seeds, it
    predicts their mean; where they disagree, they know little.

    >>> t = np.linspace(0, 1, 20)[:, None]
    >>> slope = np.linspace(-1, 1, 12)[:, None, None]
    >>> data = Fields(t, u=slope * t, y=slope * t**2)
    >>> op = Operator.fit(data, epochs=2, config={"width": 16, "latents": 8}, progress=False)
    >>> op.predict(t[:5], 0.3 * t[:5], x_query=[[0.25], [0.5]]).shape
    (2, 1)
    """

    members: list[nn.Module]
    kind: str  # the name of their class in MODELS
    task: Task
    normalizers: Normalizers
    labels: Labels
    provenance: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def fit(
        cls,
        train_data: Fields,
        *,
        epochs: int | None = None,
        task: Task | None = None,
        model: str = "lno",
        config: Any = None,
        recipe: Recipe | Mapping[str, Any] | None = None,
        validation: float | Fields = 0.1,
        members: int = 1,
        init: Operator | None = None,
        device: str = "auto",
        seed: int = 0,
        progress: bool = True,
        folder: str | Path | None = None,
        resume: bool = False,
        minutes: float | None = None,
        precision: str = "auto",
        split: str = "samples",
        symmetries: Sequence[Symmetry] = (),
        tensorboard: bool = False,
    ) -> Operator:
        """Train an operator.

        Args:
            train_data: samples with answers.
            epochs: passes over them; overrides the recipe's.
            task: what a step means; default: from the observed values straight to the answers.
            model: a name in `lno.models.MODELS`.
            config: the model's config, or a mapping of its keys.
            recipe: how to train, or a mapping of its keys.
            validation: the share of samples held back to watch the error, the same for every
                seed; or other samples.
            members: models to train at once, the k-th from seed + k. Each is, to rounding, the one
                that its seed gives alone; together they cost less.
            init: an operator to fine-tune: its weights, normalisers, model and task are taken over.
            device: "auto", "cpu", "cuda", "mps".
            seed: decides the initial weights, the order of samples and all other random draws.
            progress: show a progress bar.
            folder: where to keep checkpoints and `metrics.jsonl`; None: nowhere.
            resume: continue from the last checkpoint in `folder`, with the same bits.
            minutes: stop after so many minutes of training, ready to resume.
            precision: "fp32", "tf32" or "mixed"; "auto" is tf32 on CUDA, fp32 elsewhere.
            split: what processes under torchrun share out: "samples" of a batch, or "points" of a
                sample.
            symmetries: of the problem, like `Darcy.symmetries`: training sees random images of the
                samples under them. For data on one grid of two axes.
            tensorboard: write the learning curve into `folder`/tensorboard as well.

        With a folder, Ctrl-C and SIGTERM finish the step, save and return; `finished` then says
        that there is more to do.
        """
        recipe = recipe if isinstance(recipe, Recipe) else from_dict(Recipe, recipe or {})
        recipe = recipe if epochs is None else replace(recipe, epochs=epochs)
        require_count("members", members, 1024)
        require_count("seed", seed, 2**31, least=0)
        require_range("minutes", 0.0 if minutes is None else minutes, 0.0, 1e9)
        if init and config is not None:
            raise ValueError("init brings its model with it: pass either init or config")
        require_json("provenance of the data", train_data.provenance)
        where = pick_device(device)
        team = join(split, where)  # first: it decides which of several GPUs is this process's
        task = task or (init.task if init else Steady())
        used, held_back = hold_back(train_data, validation)
        prepared = task.prepare(used)
        if not task.observes_answers:
            require_inputs(prepared)
        normalizers = init.normalizers if init else task.normalizers(prepared)
        if init:
            kind, nets = init.kind, _copies(init, members, prepared, task)
        else:
            kind, spec = model, model_spec(prepared, normalizers)
            nets = [build_model(model, config, spec, seed + k) for k in range(members)]
        watched = None if held_back is None else require_alike(prepared, task.prepare(held_back))
        training = Training(
            [net.to(where) for net in nets],
            task,
            normalizers,
            recipe,
            prepared,
            watched,
            where,
            seed,
            pick_precision(precision, where),
            team,
            symmetries,
        )
        finished = run(training, kind, used.hash, folder, resume, minutes, progress, tensorboard)
        provenance = {
            "lno": __version__,
            "torch": torch.__version__,
            "hardware": hardware(where),
            "precision": training.precision,
            "data": {"hash": used.hash, "samples": len(used), **used.provenance},
            "recipe": to_dict(recipe),
            "symmetries": [g.name for g in symmetries],
            "seed": seed,
            "finished": finished,
            "seconds": round(training.seconds, 2),
            "compile_seconds": round(training.compile_seconds, 2),
            "peak_memory_gb": training.peak_memory / 1e9 or None,
            "members": members,
            "steps": training.step,
            "curve": curve_rows(training.curve),
            **({"init": init.provenance} if init else {}),
        }
        labels = Labels.of(prepared, task.observes_answers)
        return cls(list(training.end()), kind, task, normalizers, labels, provenance)

    def __repr__(self) -> str:
        names = (", ".join(self.labels.names[key]) for key in ("u", "x", "y"))
        u, x, y = (name or "positions" for name in names)
        each = f"{len(self.members)} × " if len(self.members) > 1 else ""
        weights = self.parameters // len(self.members)
        return f"Operator({each}{self.kind} with {weights:,} weights: {u} of {x} → {y})"

    @property
    def finished(self) -> bool:
        """Whether the training that made it ran to its end."""
        return bool(self.provenance.get("finished", True))

    @property
    def model(self) -> nn.Module:
        """The model; the first one where there are several."""
        return self.members[0]

    def member(self, k: int) -> Operator:
        """The operator of the k-th member alone."""
        if not 0 <= k < len(self.members):
            raise IndexError(f"no member {k}: this operator has {len(self.members)}, from 0 on")
        return replace(self, members=[self.members[k]])

    def predict(self, x: Any, u: Any = None, x_query: Any = None, *, weights: Any = None) -> Any:
        """Predict at `x_query` what the values `u` at `x` imply.

        An LNO's memory is bounded however many points there are; other models take whole samples.

        Args:
            x: positions (n, d) of one sample, (b, n, d) of several, or a list of arrays (n_k, d);
                or `Fields`, which hold everything.
            u: values (n, i), (b, n, i) or a list; None where the operator reads positions only.
            x_query: positions (q, d) for all samples, (b, q, d) or a list; None: the same as `x`.
            weights: logarithms of point weights (n,), (b, n) or a list, for meshes of uneven
                density; -inf leaves a point out. Only an LNO reads them.

        Returns:
            Values (q, o), (b, q, o) or a list, as the input came; NumPy for NumPy, torch for torch.
        """
        single, as_tensor = False, next((v.device for v in (x, u) if isinstance(v, Tensor)), None)
        if isinstance(x, Fields):
            fields = x
            if u is not None or x_query is not None:
                raise ValueError("Fields hold everything: expected no u and no x_query beside them")
        else:
            x, u, x_query = (v if v is None else _arrays(v) for v in (x, u, x_query))
            single = all(
                v is None or (not isinstance(v, list) and v.ndim == 2) for v in (x, u, x_query)
            )
            fields = Fields(x, u[None] if single and u is not None else u, x_query)
        self.labels.check(fields, self.normalizers.x.period)
        parts = self._predict_groups(fields, self._weights(weights, fields))
        if isinstance(x, list) or isinstance(x_query, list) or _ragged(fields):
            answers = [row for part in parts for row in part]
            return [a.to(as_tensor) if as_tensor else a.numpy() for a in answers]
        answer = torch.cat(list(parts))
        answer = answer[0] if single else answer
        return answer.to(as_tensor) if as_tensor else answer.numpy()

    def evaluate(
        self, test: Fields, *, task: Task | None = None, seed: int = 0
    ) -> dict[str, float]:
        """Mean errors over the samples of `test`, in physical units.

        Args:
            test: samples with answers.
            task: decides what is observed, at another ratio, say; default: the operator's own.
            seed: decides what the task draws.

        Returns:
            `relative_l2`, `relative_mae` and `mse`.
        """
        totals = dict.fromkeys(METRICS, 0.0)
        for batch, prediction in self.evaluate_batches(test, task=task, seed=seed):
            for name, metric in METRICS.items():
                totals[name] += float(metric(prediction, batch.y, batch.query_mask).sum())
        return {name: total / len(test) for name, total in totals.items()}

    def evaluate_batches(
        self, test: Fields, *, task: Task | None = None, seed: int = 0, size: int = 16
    ) -> Iterator[tuple[Batch, Tensor]]:
        """Batches of `test` as the task draws them, with the prediction for each (b, q, o)."""
        if test.y is None:
            raise ValueError("the data have no answers y to compare with")
        task = task or self.task
        self.labels.compare(test, "x", "y")
        prepared = task.prepare(test)
        generator = torch.Generator().manual_seed(seed)
        for index in np.array_split(np.arange(len(prepared)), -(-len(prepared) // size)):
            batch = task.observe(prepared.batch(index), prepared.grid, generator)
            assert batch.y is not None
            self.labels.require("x", batch.x.shape[-1])
            self.labels.require("u", batch.u.shape[-1])
            prediction = self._apply(batch)
            if prediction.shape != batch.y.shape:
                raise ValueError(
                    f"y: expected {prediction.shape[-1]} channels, got {batch.y.shape[-1]}"
                )
            yield batch, prediction

    def save(self, path: str | Path, *, half: bool = False) -> None:
        """Write one `.safetensors` file that holds everything, atomically.

        Args:
            path: the file.
            half: store the weights in float16, in half the space; they are computed with in
                float32. Look at the error of what `load` gives before you rely on it.
        """
        from lno import operator_file

        operator_file.save(self, path, half)

    @staticmethod
    def load(path: str | Path, device: str = "auto") -> Operator:
        """Read a file of `save`."""
        from lno import operator_file

        return operator_file.load(path, device)

    @property
    def device(self) -> torch.device:
        """Where the model is."""
        return next(self.model.parameters()).device

    @property
    def parameters(self) -> int:
        """The number of weights, of all members together."""
        return sum(p.numel() for model in self.members for p in model.parameters())

    # -- inside ----------------------------------------------------------------------------------

    def _weights(self, weights: Any, fields: Fields) -> list[Tensor] | None:
        """The log-weights (n,) of the points of each sample, or once for all; None: all alike."""
        if weights is None:
            return None
        if not isinstance(self.model, LNO):
            raise ValueError(f"only an LNO reads weights, not {type(self.model).__name__}")
        rows = [weights] if np.ndim(weights[0]) == 0 else weights
        logs = [torch.as_tensor(row).float() for row in rows]
        every = len(fields) if len(logs) == 1 else 1  # one row may serve all samples
        expected = [(len(sample.x),) for sample in fields]
        if (got := [tuple(row.shape) for row in logs]) * every != expected:
            raise ValueError(
                f"weights: expected a number for each point, of shapes {expected[:3]} for the "
                f"first of {len(expected)} samples, got {got[:3]} for {len(got)}"
            )
        if any(row.isnan().any() or row.isposinf().any() for row in logs):
            raise ValueError("weights: expected logarithms, finite or -inf, got NaN or infinity")
        return [row.clamp_min(LEAST_WEIGHT) for row in logs]

    def _predict_groups(self, fields: Fields, weights: list[Tensor] | None) -> Iterator[Tensor]:
        """Predictions for as many samples at a time as fit into one chunk of points."""
        points = max(len(fields[0].x), len(fields[0].x_query))
        size = 1 if _ragged(fields) else max(1, CHUNK // points)
        for part in slices(len(fields), size):
            batch = fields.batch(np.arange(part.start, part.stop))
            log = None
            if weights is not None:
                log = torch.stack(weights if len(weights) == 1 else weights[part])
            prediction = self._apply(batch, log)
            bad = ~torch.isfinite(prediction)
            if bad.any():
                sample, point, _ = bad.nonzero()[0].tolist()
                raise RuntimeError(
                    f"the prediction for sample {part.start + sample}, point {point} is not "
                    "finite: the input is far from the training data, or the weights are damaged"
                )
            yield prediction

    @torch.inference_mode()
    def _apply(self, batch: Batch, weights: Tensor | None = None) -> Tensor:
        """The mean prediction (b, q, o) of all members in physical units, on the CPU."""
        mean: Tensor | None = None
        for k, model in enumerate(self.members, start=1):
            apply = partial(self._apply_one, model, weights)
            with matrix_products("fp32"):
                prediction = self.task.predict(apply, batch, self.normalizers.x, self.device)
            mean = prediction if mean is None else mean + (prediction - mean) / k
        assert mean is not None
        return mean

    def _apply_one(self, model: nn.Module, weights: Tensor | None, batch: Batch) -> Tensor:
        """What one member makes of a batch (b, q, o), a chunk of points at a time."""
        model.eval()
        device, scale = self.device, self.normalizers
        b, (n, q) = len(batch), (batch.x.shape[1], batch.x_query.shape[1])
        chunk = max(1, CHUNK // b)
        if max(n, q) <= chunk or not isinstance(model, LNO):
            ready = scale.encode(batch).to(device)
            extra = {} if weights is None else {"weights": weights.to(device)}
            out = model(ready.x, ready.u, ready.x_query, ready.mask, **extra)
            return scale.y.decode(out.float()).cpu()

        def observed() -> Iterator[tuple[Any, ...]]:
            for part in slices(n, chunk):
                rest = (None if v is None else v[:, part].to(device) for v in (batch.mask, weights))
                x, u = scale.x.encode(batch.x[:, part]), scale.u.encode(batch.u[:, part])
                yield x.to(device), u.to(device), *rest

        z = model.process(model.encode_parts(observed()))
        answer = torch.empty(b, q, len(scale.y.mean))
        for part in slices(q, chunk):
            out = model.decode(z, scale.x.encode(batch.x_query[:, part]).to(device))
            answer[:, part] = scale.y.decode(out.float()).cpu()
        return answer


def model_spec(prepared: Fields, normalizers: Normalizers) -> Spec:
    """What the model sees: encoded positions and normalised channels."""
    i, o = len(normalizers.u.mean), len(normalizers.y.mean)
    return Spec(normalizers.x.features, i, o, prepared.grid)


def _copies(init: Operator, count: int, prepared: Fields, task: Task) -> list[nn.Module]:
    """Models to fine-tune: the operator's members in turn."""
    expected = model_spec(prepared, init.normalizers)
    own = task.normalizers(prepared)
    got = model_spec(prepared, own)
    if replace(expected, grid=None) != replace(got, grid=None):
        raise ValueError(
            f"cannot fine-tune: the operator was trained for {expected}, the data are {got}"
        )
    if init.normalizers.x.period != own.x.period:
        raise ValueError(
            f"cannot fine-tune: the operator's coordinates have periods "
            f"{init.normalizers.x.period}, those of the data {own.x.period}"
        )
    return [copy.deepcopy(init.members[k % len(init.members)]) for k in range(count)]


def _ragged(fields: Fields) -> bool:
    return any(isinstance(c, columns.Ragged) for c in (fields.x, fields.x_query))


def _arrays(values: Any) -> Any:
    """Tensors and nested lists of numbers as arrays; lists of arrays as they are."""
    if isinstance(values, Tensor):
        return values.detach().cpu().numpy()
    ragged = isinstance(values, list | tuple) and len(values) > 0 and np.ndim(values[0]) == 2
    return list(values) if ragged else np.asarray(values)
