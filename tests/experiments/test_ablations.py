"""The paper's ablations: specs, tables and claims from made-up runs, and small runs end to end."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import deformed
import numpy as np
import pytest
from command_line import lno
from filed_runs import fake
from scipy import stats
from small_forward import train_missing

from lno.config import from_dict
from lno.experiments import ablations, forward, plan, presets, runs, scaling, significance
from lno.experiments.ablations import changed, paper_run
from lno.experiments.inverse import TRUTH, Completer, Propagator
from lno.experiments.paper import ATTENTION, PROJECTORS
from lno.experiments.queue import chosen
from lno.experiments.runs import RunSpec
from lno.experiments.tables import EXPERIMENTS
from lno.ledger import Run
from lno.models import ATTENTIONS, LNOConfig, SlicedLNOConfig

NAMES = ("attention", "projectors", "latents", "depth", "width", "seeds")
EVERY = [spec for name in NAMES for spec in EXPERIMENTS[name].specs()]
BASE = RunSpec("elasticity", "lno", "paper", 100, "tf32")


# -- specs -----------------------------------------------------------------------------------------


def test_a_change_is_part_of_the_setup_its_name_and_its_key() -> None:
    spec = replace(BASE, changes=(("latents", 64), ("tied", False)))
    assert spec.setup == "paper.latents=64.tied=False"
    assert spec.name(2) == "paper.latents=64.tied=False-100-tf32-seed2"
    config = spec.preset.config
    assert config == replace(BASE.preset.config, latents=64, tied=False)
    assert spec.preset.recipe == BASE.preset.recipe
    assert spec.key != BASE.key and spec.folder([0]) != BASE.folder([0])
    assert BASE.name(0) == "paper-100-tf32-seed0"


def test_names_tell_all_setups_apart_and_lead_back_to_their_configs() -> None:
    by_path = {}
    for spec in EVERY:
        assert by_path.setdefault(spec.path(Path("results"), 0), spec) == spec
        recipe, *pairs = spec.setup.split(".")
        assert recipe == spec.recipe
        keys = dict(pair.split("=") for pair in pairs)
        assert all(str(getattr(spec.preset.config, key)) == text for key, text in keys.items())
        assert from_dict(type(spec.preset.config), vars(spec.preset.config)) == spec.preset.config


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("latnets", 64), r"no key 'latnets' \(did you mean 'latents'\?\)"),
        (("latents", 0), "latents must be a whole number from 1"),
        (("attention", "linear"), "attention must be one of softmax"),
        (("width", 100), "heads must divide the width 100"),
    ],
)
def test_changes_are_as_strict_as_configs(change: tuple, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        _ = replace(BASE, changes=(change,)).preset


def test_sizes_that_are_left_to_the_data_may_be_changed_one_by_one() -> None:
    spec = RunSpec("elasticity", "transolver", "small", 1, changes=(("width", 8), ("heads", 2)))
    assert spec.preset.config == {"width": 8, "heads": 2}


def test_unchanged_setups_are_those_of_the_forward_table() -> None:
    shared = {
        spec
        for spec in EVERY
        if not spec.changes
        and spec.problem != "burgers"
        and spec.model in ("sliced_lno", *significance.COMPARED)
    }
    own = {spec for spec in shared if spec.model == "sliced_lno"}
    assert shared - own <= set(forward.SPECS)
    assert {spec.problem for spec in own} == set(forward.FORWARD["lno"])
    assert changed(BASE, "latents", 256) is BASE


def test_every_ablation_of_elasticity_is_required_and_no_other() -> None:
    for name in NAMES:
        seeds = 5 if name == "seeds" else 1
        for spec in EXPERIMENTS[name].specs():
            compared = spec.model in ("sliced_lno", *significance.COMPARED)
            required = spec.problem == "elasticity" and compared
            assert spec.required == (seeds if required else 0)
    elasticity = [s for s in EXPERIMENTS["attention"].specs() if s.problem == "elasticity"]
    assert [ablations.attention_of(s) for s in elasticity] == list(ablations.KINDS)
    assert set(ablations.KINDS) == set(ATTENTION) == {"physics", *ATTENTIONS}
    for name, key, sizes in (
        ("latents", "latents", scaling.LATENTS),
        ("depth", "blocks", scaling.DEPTHS),
        ("width", "width", scaling.WIDTHS),
    ):
        for series in scaling.series_of(EXPERIMENTS[name].specs(), key):
            assert tuple(series.specs) == sizes and series.kept in sizes
            assert not series.specs[series.kept].changes


def test_physics_attention_has_the_sizes_of_lno() -> None:
    for problem, config in presets.PAPER_CONFIGS.items():
        if problem != "burgers":
            found = presets.preset(problem, "paper", "sliced_lno")
            sizes = (config.width, config.latents, config.blocks, config.heads, config.layers)
            assert found.config == SlicedLNOConfig(*sizes)
            assert found.recipe == presets.preset(problem, "paper", "lno").recipe


def test_recipes_are_chosen_with_or_without_their_changes() -> None:
    specs = EXPERIMENTS["projectors"].specs()
    assert len(chosen(specs, ["elasticity"], recipes=["paper"])) == 2
    [spec] = chosen(specs, ["elasticity"], recipes=["paper.tied=False"], epochs=3)
    assert spec.changes == (("tied", False),) and spec.epochs == 3
    with pytest.raises(ValueError, match=r"no recipe 'paper.tied=True'.*paper.tied=False"):
        chosen(specs, recipes=["paper.tied=True"])


def test_minutes_of_a_changed_setup_follow_from_the_unchanged_one(tmp_path: Path) -> None:
    fake(tmp_path, BASE, [0.01], seconds=60.0, members=1)
    minutes = plan.estimate(BASE, 1, tmp_path)
    assert minutes == pytest.approx(60 / 1000 * BASE.steps / 60)
    wide, deep = (replace(BASE, changes=(change,)) for change in (("width", 64), ("blocks", 16)))
    assert plan.estimate(wide, 1, tmp_path) == minutes
    assert plan.estimate(ablations.sliced(BASE), 1, tmp_path) == minutes
    assert plan.estimate(deep, 1, tmp_path) == 2 * minutes
    fake(tmp_path, deep, [0.02], seconds=90.0, members=1)
    assert plan.estimate(deep, 1, tmp_path) == pytest.approx(1.5 * minutes)
    assert plan.estimate(BASE, 1, tmp_path) == minutes
    table, _ = plan.plan(plan.jobs_of_table([deep, wide], [0], tmp_path), tmp_path)
    assert [row[0].split()[-1] for row in table.rows] == ["paper.width=64"]


# -- tables and claims -----------------------------------------------------------------------------


def notes_of(name: str, results: Path, problems: tuple[str, ...], seeds: int = 3) -> str:
    experiment = EXPERIMENTS[name]
    specs = chosen(experiment.specs(), problems)
    return experiment.tables[0](specs, range(seeds), results).markdown()


def test_attention_is_shown_beside_the_papers_and_judged(tmp_path: Path) -> None:
    at = {"physics": 0.03, "efficient": 0.021, "nystrom": 0.05, "galerkin": 0.022, "softmax": 0.01}
    for spec in chosen(ablations.ATTENTION_SPECS, ["elasticity"]):
        error = at[ablations.attention_of(spec)]
        fake(tmp_path, spec, [error - 0.001, error, error + 0.001])
    for spec in chosen(ablations.ATTENTION_SPECS, ["ns2d"]):
        if spec.epochs == 500:
            fake(tmp_path, spec, [0.8 * at[ablations.attention_of(spec)]])
    text = notes_of("attention", tmp_path, ("elasticity", "ns2d"))
    lines = text.splitlines()
    assert "ns2d at 20 epochs | ns2d at 500 epochs | elasticity at 100 epochs" in lines[0]
    assert "| LNO with efficient attention | 0–3 | missing | 1.680 | 2.100 ± 0.100 |" in lines
    assert "| LNO with efficient attention, as published |  | 20.18 | 20.18 | 0.54 |" in lines
    doubled = "(20.18 to 23.03 against 8.45 %, 2.39 to 2.73 times). Our runs"
    found = "ns2d at 500 epochs (1.68 to 4.00 against 0.80 %, 2.10 to 5.00 times)"
    assert f"{doubled}: yes on {found}; not run yet on ns2d at 20 epochs." in text
    assert "elasticity at 100 epochs (3.00 against 1.00 %, 3.00 times); not run yet" in text
    spec = next(s for s in ablations.ATTENTION_SPECS if s.epochs == 500 and s.changes)
    fake(tmp_path, spec, [0.0159])
    assert f"{doubled}: no on ns2d at 500 epochs (1.59 to" in notes_of(
        "attention", tmp_path, ("ns2d",)
    )


def test_projectors_are_judged_against_twice_the_error(tmp_path: Path) -> None:
    assert "Elasticity (1.09 against 0.52 %, 2.10 times). Our runs: not run yet." in notes_of(
        "projectors", tmp_path, ("elasticity",)
    )
    pairs = {"elasticity": (0.019, 0.01), "plasticity": (0.009, 0.01), "pipe": (0.009, 0.01)}
    for problem, errors in pairs.items():
        for tied, error in zip((False, True), errors, strict=True):
            fake(tmp_path, changed(paper_run(problem), "tied", tied), [error])
    text = notes_of("projectors", tmp_path, ("elasticity", "plasticity", "pipe"))
    assert "2.10 times). Our runs: no on elasticity at 100 epochs (1.90 against" in text
    assert "yes on elasticity at 100 epochs (1.90 against 1.00 %, 1.90 times), plast" in text
    assert "no on pipe at 50 epochs (0.90 against 1.00 %, 0.90 times)." in text
    assert "| LNO, separate projectors | 1 | 1.900 | 0.900 | 0.900 |" in text
    assert PROJECTORS[True] == ATTENTION["softmax"] == forward.FORWARD["lno"]


def test_sizes_are_judged_by_where_the_error_is_least(tmp_path: Path) -> None:
    def errors(problem: str, key: str, by_size: dict[int, float]) -> None:
        for size, error in by_size.items():
            fake(tmp_path, changed(paper_run(problem), key, size), [error])

    falling = {size: 0.1 / size for size in scaling.LATENTS}
    errors("darcy", "latents", falling)
    errors("elasticity", "latents", falling)
    text = notes_of("latents", tmp_path, ("darcy", "elasticity", "ns2d"))
    assert (
        "up to M = 512. Our runs: yes on darcy at 100 epochs (least with 512 latents: 0.020 %"
        in text
    )
    assert "before M = 512. Our runs: no on elasticity at 100 epochs" in text
    assert "| darcy at 100 epochs | error, % | 1 | 0.625 | 0.312 |" in text
    assert "| darcy at 100 epochs | ms a step |  | 10.00 | 10.00 |" in text
    assert "| ns2d at 20 epochs | error, % | 0 | missing |" in text
    errors("pipe", "blocks", {1: 0.03, 2: 0.02, 4: 0.012, 8: 0.013, 12: 0.014, 16: 0.011})
    text = notes_of("depth", tmp_path, ("pipe",))
    assert "more than 8 blocks increase the error. Our runs: no on pipe at 50 epochs " in text
    assert "(least with 16 blocks: 1.100 %; with 4: 1.200 %)" in text
    errors("pipe", "width", {size: 1 / size for size in scaling.WIDTHS})
    assert "width of 256. Our runs: yes on pipe" in notes_of("width", tmp_path, ("pipe",))
    errors("pipe", "width", {192: 0.001})
    assert "width of 256. Our runs: no on pipe" in notes_of("width", tmp_path, ("pipe",))


def test_seeds_are_tested_over_samples_and_over_seeds(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    ours, theirs = (paper_run("elasticity", model) for model in ("lno", "transolver"))
    a, b = random.normal((0.010, 0.0106), 0.0005, (5, 2)).T
    samples = random.normal(0, 0.001, (2, 40))
    fake(tmp_path, ours, a, samples={"test": (0.010 + samples[0]).tolist()})
    fake(tmp_path, theirs, b, samples={"test": (0.0102 + samples[1]).tolist()})
    text = notes_of("seeds", tmp_path, ("elasticity", "pipe"), seeds=5)
    over_samples = stats.wilcoxon(0.010 + samples[0], 0.0102 + samples[1]).pvalue
    variances = a.var(ddof=1) / 5, b.var(ddof=1) / 5
    t = (a.mean() - b.mean()) / np.sqrt(sum(variances))
    freedom = sum(variances) ** 2 / (sum(v**2 for v in variances) / 4)
    over_seeds = 2 * stats.t.sf(abs(t), freedom)
    assert over_samples > 0.05 > 1e-3 and over_seeds > 1e-3
    assert f"| 5, 5 | {over_samples:.3f} | {over_seeds:.3f} | 0.52 ± 0.03 | 0.62 ± 0.02 |" in text
    assert "Plasticity. Our runs: yes on elasticity at 100 epochs (LNO 1.0" in text
    assert "%, which may be chance); not run yet on pipe at 50 epochs." in text
    fake(tmp_path, ours, a[:1])
    single = notes_of("seeds", tmp_path, ("elasticity",), seeds=1)
    assert "%, which may be chance)" in single  # nothing is known of other seeds
    specs = chosen(EXPERIMENTS["seeds"].specs(), ["elasticity"])
    every = significance.models_table(specs, range(5), tmp_path)
    rows = {row[0]: row[1:] for row in every.rows}
    assert rows["U-FNO"] == ["0", "missing"]
    assert rows["U-FNO, as published"] == ["", "2.13 ± 0.03"]
    assert {row.removesuffix(", as published") for row in rows} == {
        "F-FNO", "U-FNO", "GNOT", "Transolver", "LNO"
    }  # fmt: skip


def test_pairs_are_those_of_the_same_samples(tmp_path: Path) -> None:
    def run(samples: list[float], **more: object) -> Run:
        fake(tmp_path, BASE, [0.1], samples={"test": samples}, **more)
        [found] = BASE.runs(tmp_path, [0]).values()
        return found

    worse = [run([0.2 + k, 0.3 + k]) for k in range(5)]  # by ranks: all five differences positive
    better = run([0.1, 0.2])
    assert significance.over_samples([better], [better]) == 1.0
    assert significance.over_samples([better], worse) == pytest.approx(0.5)  # two samples: 2 / 2²
    five = run([0.1, 0.2, 0.3, 0.4, 0.5])
    others = run([0.2, 0.32, 0.43, 0.54, 0.65])
    assert significance.over_samples([five], [others]) == pytest.approx(2 / 2**5)
    assert significance.over_samples([five], [better]) is None  # other samples
    assert significance.over_samples([five], [run([0.2] * 5, data_hash="cd")]) is None  # other data
    assert significance.over_samples([five], []) is None
    assert significance.over_seeds([0.1], [0.1, 0.2]) is None


# -- end to end, on a small scale ------------------------------------------------------------------


@pytest.fixture
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Tiny samples and models in place of the paper's; returns an empty ledger."""
    monkeypatch.setenv("LNO_DATA", str(tmp_path / "cache"))
    deformed.shrink_presets(monkeypatch)
    sliced = presets.PRESETS["sliced_lno"]["paper"]
    tiny = replace(sliced["elasticity"], config=SlicedLNOConfig(16, 8, 1, 2, 1))
    monkeypatch.setitem(sliced, "elasticity", tiny)
    made = deformed.elasticity(7)
    monkeypatch.setattr(runs, "dataset", lambda problem, *_: made.split(5, 2))
    return tmp_path / "results"


@pytest.mark.parametrize("name", ["attention", "projectors", "depth"])
def test_one_command_trains_and_prints_an_ablation(
    name: str, small: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["reproduce", name, "--problems", "elasticity", "--epochs", 1, "--precision", "fp32"]
    words += ["--results", small, "--device", "cpu", "--seeds", 1]
    listed = " ".join(lno(capsys, *words, "--dry-run").split())
    shown = lno(capsys, *words)
    assert "missing" not in shown
    paths = sorted(small.rglob("*.json"))
    setups = {Run.load(path).recipe for path in paths}
    assert setups <= {row for row in listed.split() if row.startswith("paper")}
    for path in paths:
        run = Run.load(path)
        for pair in run.recipe.split(".")[1:]:
            key, text = pair.split("=")
            assert str(run.config["model"][key]) == text
    assert len(paths) == {"attention": 5, "projectors": 2, "depth": 6}[name]
    assert "nothing is missing" in lno(capsys, *words, "--dry-run")
    samples = {path.name for path in small.rglob("*.npz")}  # of unchanged setups only
    assert samples == {"paper-1-fp32-seed0.npz"}


def test_a_changed_operator_is_kept_apart_from_the_unchanged_one(small: Path) -> None:
    base = RunSpec("elasticity", "lno", "paper", 1, "fp32")
    other = replace(base, changes=(("latents", 3),))
    assert train_missing([base, other], [0, 1], small, device="cpu")
    assert base.operator(1).model.config.latents == 8
    assert other.operator(1).model.config.latents == 3
    assert other.operator(1).provenance["run"]["recipe"] == "paper.latents=3"
    assert isinstance(other.operator(1).model.config, LNOConfig)


def test_stages_of_the_inverse_problem_take_changes(root: Path) -> None:
    results = root / "ablation"
    specs = [
        kind("burgers", "lno", recipe, 1, "fp32", changes=(("latents", 3),))
        for kind, recipe in ((Completer, "completer"), (Propagator, "propagator"))
    ]
    assert specs[1].data_sets() == [TRUTH] and not specs[1].needs()  # from the truth alone
    assert train_missing(specs, [0], results, device="cpu")
    [series] = scaling.series_of(specs[1:], "latents")
    assert series.label == "propagator at 1 epochs" and series.printed == 3.73
    assert list(series.errors([0], results)) == [3] and series.errors([0], results)[3]
    table = scaling.latents_table(specs, [0], results)
    assert len(table.rows) == 2 and "missing" not in str(table.rows)
