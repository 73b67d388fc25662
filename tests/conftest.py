"""For all tests: what they start is started as a terminal starts it; where CI=true, a skip needs a listed reason;
where two processes share the work (`pytest -n 2`), they share it by file."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest


def pytest_configure() -> None:
    """A background job of a script ignores Ctrl-C, one under nohup the end of its terminal; and so would every process
    that a test starts."""
    for number, usual in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, usual)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Each file is one process's work, in the files' order, because its tests may share a server. The pages of the docs
    share nothing and take long: each of them is work of its own, else they would be the whole end of a run. A real node is one
    machine's containerd and bridge: all files that start one are one work."""
    from xdist.scheduler import LoadScopeScheduling

    class FileScheduling(LoadScopeScheduling):  # type: ignore[misc] # xdist is not typed
        def _split_scope(self, nodeid: str) -> str:
            file = nodeid.partition("::")[0]
            if file == "tests/test_docs.py":
                return nodeid
            return "a real node" if file in REAL_NODE else file

    config.option.loadscopereorder = False
    return FileScheduling(config, log)


REAL_NODE = frozenset(
    f"tests/kube_evidence/test_{name}.py" for name in ("followed_stream", "own_operator", "real_node")
)
"""Files that start containerd and a kubelet."""
ON_REAL = "on_real"
ENGINES = (
    "embedded",
    pytest.param("real", id=ON_REAL, marks=[pytest.mark.real, pytest.mark.timeout(300, func_only=True)]),
)
"""The parameters of a fixture that starts a cluster: tests that take it run on both engines (`tests/engines/`). The first test on the
real one waits for it to start."""
NOT_ON_A_REAL_CLUSTER = Path(__file__).parent / "engines" / "not_on_a_real_cluster.txt"


@pytest.fixture(scope="session")
def real_engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A real control plane and a server over it, for all tests of a run: a `RealEngine`."""
    from tests.conformance.subjects import real_cluster_missing
    from tests.engines.real_engine import real_engine as started

    if missing := real_cluster_missing(operator=True):
        pytest.skip(missing)
    with started(tmp_path_factory.mktemp("engine")) as engine:
        yield engine


def name_on_both(nodeid: str) -> str:
    """The name of a test without its engine, for one that would run on the real one; "" for others."""
    test, _, words = nodeid.removesuffix("]").partition("[")
    parts = words.split("-")
    if ON_REAL not in parts:
        return ""
    parts.remove(ON_REAL)
    return f"{test}[{'-'.join(parts)}]" if parts else test


def only_embedded() -> dict[str, str]:
    """The tests of `not_on_a_real_cluster.txt`, with the reason: the comment above them."""
    found, reason, was_test = {}, "", True
    lines = NOT_ON_A_REAL_CLUSTER.read_text(encoding="utf-8").splitlines() if NOT_ON_A_REAL_CLUSTER.exists() else []
    for line in filter(None, lines):
        if line.startswith("#"):
            reason = line[2:] if was_test else f"{reason} {line[2:]}"
        else:
            found[line] = reason
        was_test = not line.startswith("#")
    return found


def is_listed(nodeid: str, listed: Iterable[str]) -> bool:
    """Whether this test of the real engine is left out: by its name, by that of its function, or with its file."""
    name = name_on_both(nodeid)
    function = name.partition("[")[0]
    return bool(name) and not {name, function, function.partition("::")[0]}.isdisjoint(listed)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """What cannot run on a real cluster is not asked of it; what can has longer, since such a cluster starts within it."""
    listed = only_embedded()
    left_out = {id(one): one for one in items if is_listed(one.nodeid, listed)}
    if left_out:
        items[:] = [one for one in items if id(one) not in left_out]
        config.hook.pytest_deselected(items=list(left_out.values()))
    for one in items:
        if one.get_closest_marker("real") and not one.get_closest_marker("timeout"):
            one.add_marker(pytest.mark.timeout(REAL_TIMEOUT_S))


REAL_TIMEOUT_S = 400
"""A test over a real cluster that takes longer hangs: its cluster's start (40 s) and twenty commands, on a machine as busy as can be."""

ALLOWED_SKIPS = Path(__file__).with_name("allowed_skips.txt")
_unexpected_skips: list[str] = []
"""One sentence for each skip of this run that CI does not allow."""


def allowed_reasons() -> list[str]:
    """The regular expressions of `allowed_skips.txt`."""
    lines = ALLOWED_SKIPS.read_text(encoding="utf-8").splitlines()
    return [line for line in lines if line and not line.startswith("#")]


def judge_skip(nodeid: str, reason: str) -> str:
    """Why CI must not accept this skip; "" when it may."""
    reason = reason.removeprefix("Skipped: ")
    if any(re.fullmatch(allowed, reason) for allowed in allowed_reasons()):
        return ""
    return f"{nodeid} was skipped for a reason that {ALLOWED_SKIPS.name} does not list: {reason}"


def _note_skip(report: pytest.TestReport | pytest.CollectReport) -> None:
    if os.environ.get("CI") != "true" or report.outcome != "skipped" or hasattr(report, "wasxfail"):
        return
    reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    if sentence := judge_skip(report.nodeid, reason):
        _unexpected_skips.append(sentence)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    _note_skip(report)


def pytest_collectreport(report: pytest.CollectReport) -> None:
    _note_skip(report)


def pytest_sessionfinish(session: pytest.Session) -> None:
    if _unexpected_skips and session.exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if _unexpected_skips:
        terminalreporter.section("skips that CI does not allow", red=True)
        for sentence in _unexpected_skips:
            terminalreporter.write_line(sentence)
