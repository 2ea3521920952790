"""All tests that need a CUDA GPU, and a record of how they went.

    python benchmarks/gpu_tests.py [words for pytest, such as -x]

Writes results/benchmarks/gpu_tests.json: the commit, the hardware, how many tests passed, failed,
were skipped and did not run, and the seconds they took. After Ctrl-C (`timeout -s INT 540 python
...`) the rest did not run. `$LNO_COMMIT` gives the commit where the source is a copy without its
history. Exits with pytest's status. Without a GPU nothing is written.
"""

from __future__ import annotations

import platform
import sys
import time
from collections import Counter
from pathlib import Path

import pytest
import torch

from lno.files import write_json
from lno.ledger import commit

ROOT = Path(__file__).parents[1]
RESULT = ROOT / "results" / "benchmarks" / "gpu_tests.json"


class Outcomes:
    """A plugin of pytest that counts how tests end."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter(passed=0, failed=0, skipped=0)
        self.failed: list[str] = []
        self.left: set[str] = set()  # tests that did not run yet

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        self.left = {item.nodeid for item in session.items}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "teardown":
            self.left.discard(report.nodeid)
        if report.when == "call" or report.outcome != "passed":  # set-up counts where it fails
            self.counts[report.outcome] += 1
            if report.failed:
                self.failed.append(report.nodeid)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self.counts["failed"] += 1
            self.failed.append(report.nodeid)


def main() -> int:
    if not torch.cuda.is_available():
        print("no CUDA GPU here: nothing to record", file=sys.stderr)
        return 1
    outcomes, start = Outcomes(), time.perf_counter()
    # Only tests: examples in docstrings need no GPU, and their modules may need other packages.
    # Whatever cannot be imported must not keep the other tests from running.
    options = ["-o", "addopts=-q --strict-markers", "--continue-on-collection-errors"]
    words = ["-m", "gpu", "-p", "no:cacheprovider", *options, str(ROOT / "tests")]
    words += sys.argv[1:]
    status = int(pytest.main(words, plugins=[outcomes]))
    record = {
        "commit": commit(),
        "hardware": torch.cuda.get_device_name(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        **outcomes.counts,
        "not_run": len(outcomes.left),
        "failures": outcomes.failed,
        "seconds": round(time.perf_counter() - start, 1),
    }
    write_json(RESULT, record)
    print(
        f"{record['passed']} passed, {record['failed']} failed, {record['skipped']} skipped, "
        f"{record['not_run']} not run in {record['seconds']} s on {record['hardware']}, commit "
        f"{record['commit'] or 'unknown'}"
    )
    return status


if __name__ == "__main__":
    sys.exit(main())
