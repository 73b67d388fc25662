"""Where the tests find what was recorded by running a real system.

`tests/data` is part of the repository (its README says how each file is recorded again). Tables converted from other
projects' tests are not: they lie in a folder `shared` beside the repository, and tests that read them are skipped
without it.
"""

from __future__ import annotations

from pathlib import Path

DATA = Path(__file__).parent / "data"
WALKS = DATA / "kubectl-walk"
OPERATOR_CASES = DATA / "operator-cases"
JOB_CASES = DATA / "job-cases"
TRAINER_CASES = DATA / "trainer-cases"

BESIDE = Path(__file__).resolve().parents[2] / "shared"
"""Optional. A test that needs a file of it is skipped with a reason that `tests/allowed_skips.txt` lists."""


def operator_case_files() -> list[Path]:
    """The recorded operator cases: ours, then those that were ported from other projects' tests, where they are."""
    return [
        *sorted(OPERATOR_CASES.glob("*.json")),
        *sorted((BESIDE / "data" / "operator-cases").glob("ported.json")),
    ]
