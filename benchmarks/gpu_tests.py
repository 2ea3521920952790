"""All tests that need a CUDA GPU, and a record of how they went.

    python benchmarks/gpu_tests.py [--jobs 8] [--seconds 500] [words for pytest, such as -x]

Most of their time is compilation, so several processes share the tests. Writes
results/benchmarks/gpu_tests.json: the commit, the hardware, how many tests passed, failed, were
skipped and did not run before the time was over, and the seconds they took. `$LNO_COMMIT` gives the
commit where the source is a copy without its history. Exits with the worst status of pytest.
Without a GPU nothing is written.
"""

from __future__ import annotations

import argparse
import math
import multiprocessing
import platform
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import torch

from lno.files import write_json
from lno.ledger import commit

ROOT = Path(__file__).parents[1]
RESULT = ROOT / "results" / "benchmarks" / "gpu_tests.json"
NOTHING_TO_RUN = 5  # pytest's status


@dataclass(eq=False)  # pytest hashes its plugins
class Share:
    """A plugin of pytest that runs every `jobs`-th test, and counts how they end."""

    number: int
    jobs: int
    deadline: float
    counts: Counter[str] = field(default_factory=Counter)
    failed: list[str] = field(default_factory=list)
    left: set[str] = field(default_factory=set)  # tests that did not run yet
    status: int = 0

    @pytest.hookimpl(trylast=True)  # when the others have chosen
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items[:] = items[self.number :: self.jobs]
        self.left = {item.nodeid for item in items}

    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        if time.time() > self.deadline:
            item.session.shouldstop = "the time is over"
            pytest.skip("the time is over")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if time.time() > self.deadline and report.when == "setup" and report.skipped:
            return
        if report.when == "call" or report.outcome != "passed":  # set-up counts where it fails
            self.left.discard(report.nodeid)
            self.counts[report.outcome] += 1
            if report.failed:
                self.failed.append(report.nodeid)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed and self.number == 0:  # the others fail in the same way
            self.counts["failed"] += 1
            self.failed.append(report.nodeid)


def run(share: Share, words: list[str]) -> Share:
    """Run the tests of a share. Returns it without pytest's objects, to be sent to the parent."""
    # Only tests: examples in docstrings need no GPU, and their modules may need other packages.
    # Whatever cannot be imported must not keep the other tests from running.
    options = ["-o", "addopts=-q --strict-markers", "--continue-on-collection-errors"]
    words = ["-m", "gpu", "-p", "no:cacheprovider", *options, *words]
    share.status = int(pytest.main(words, plugins=[share]))
    return share


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--jobs", type=int, default=1, help="processes that share the tests")
    parser.add_argument("--seconds", type=float, default=math.inf, help="start no test after these")
    options, words = parser.parse_known_args()
    if not torch.cuda.is_available():
        print("no CUDA GPU here: nothing to record", file=sys.stderr)
        return 1
    start, deadline = time.perf_counter(), time.time() + options.seconds
    if not any(Path(word.split("::")[0]).exists() for word in words):
        words.append(str(ROOT / "tests"))
    shares = [(Share(k, options.jobs, deadline), words) for k in range(options.jobs)]
    with multiprocessing.get_context("spawn").Pool(options.jobs) as pool:
        done = pool.starmap(run, shares, chunksize=1)
    counts = sum((share.counts for share in done), Counter())
    record = {
        "commit": commit(),
        "hardware": torch.cuda.get_device_name(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        **{outcome: counts[outcome] for outcome in ("passed", "failed", "skipped")},
        "not_run": sum(len(share.left) for share in done),
        "failures": [test for share in done for test in share.failed],
        "seconds": round(time.perf_counter() - start, 1),
    }
    write_json(RESULT, record)
    print(
        f"{record['passed']} passed, {record['failed']} failed, {record['skipped']} skipped, "
        f"{record['not_run']} not run in {record['seconds']} s on {record['hardware']}, commit "
        f"{record['commit'] or 'unknown'}"
    )
    return max((s.status for s in done if s.status != NOTHING_TO_RUN), default=0)


if __name__ == "__main__":
    sys.exit(main())
