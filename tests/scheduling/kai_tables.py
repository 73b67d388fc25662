"""`python -m tests.scheduling.kai_tables FILE.json`: KAI's own test tables, played by this planner.

One line per table (`ok NAME`, `FAIL NAME: difference`, `skip NAME: outside our fence`) and a total. Unit tables run one
action and compare statuses as planned; integration tables run rounds, in which evicted pods come back pending and
bound ones run, and must then stay as they are.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.scheduling.kai_table_cases import TableCase, TableTask, not_applicable_feature, read_case

from rowlock.scheduling.model.gang_state import TaskState
from rowlock.scheduling.model.session import Session, open_session
from rowlock.scheduling.model.snapshot import Status
from rowlock.scheduling.planner import Planner

ROUNDS_UNTIL_MATCH, ROUNDS_AFTER_MATCH = 2, 5
STATUS_PLANNED = {Status.ALLOCATED: "Binding", Status.BOUND: "Binding"}
STATUS_AFTER_ROUND = {
    Status.RELEASING: Status.PENDING,
    Status.PIPELINED: Status.PENDING,
    Status.ALLOCATED: Status.RUNNING,
    Status.BOUND: Status.RUNNING,
}


@dataclass(frozen=True, slots=True)
class TableResult:
    name: str
    outcome: str
    """ok, FAIL or skip."""
    detail: str = ""

    def __str__(self) -> str:
        return f"{self.outcome} {self.name}" + (f": {self.detail}" if self.detail else "")


def table_name(table: Mapping[str, Any]) -> str:
    return str(table.get("Name") or (table.get("_outer") or {}).get("name") or table.get("_line") or "unnamed")


def check_table(table: Mapping[str, Any]) -> TableResult:
    """Play one table."""
    feature = not_applicable_feature(table)
    if feature:
        return TableResult(table_name(table), "skip", f"{feature} is outside our fence")
    case = read_case(table)
    if "integration_tests" in str(table.get("_file")):
        detail = _play_rounds(table, case)
    else:
        session = _plan_case(case)
        detail = next(_differences(table, case, session, planned=True), "") or _compare_eviction_count(
            table, case, session
        )
    return TableResult(table_name(table), "FAIL" if detail else "ok", detail)


def _plan_case(case: TableCase) -> Session:
    planner = Planner(open_session(case.snapshot()))
    planner.run_cycle(keep_plan=True)
    return planner.session


def _play_rounds(table: Mapping[str, Any], case: TableCase) -> str:
    outer = table.get("_outer") or {}
    until = int(outer.get("RoundsUntilMatch") or ROUNDS_UNTIL_MATCH)
    after = int(outer.get("RoundsAfterMatch", ROUNDS_AFTER_MATCH))
    for at in range(1, until + after + 1):
        session = _plan_case(case)
        _advance_case(case, session)
        if at >= until and (difference := next(_differences(table, case, session, planned=False), "")):
            return f"round {at}: {difference}"
    return ""


def _task_states(session: Session) -> dict[str, TaskState]:
    return {t.task.name: t for g in session.gangs.values() for t in g.tasks}


def _advance_case(case: TableCase, session: Session) -> None:
    """What happens between rounds: bound pods run, evicted ones are made again, deleted jobs keep leaving."""
    for name, state in _task_states(session).items():
        task = next(t for j in case.jobs for t in j.tasks if t.name == name)
        if state.status is Status.RELEASING and task.job.deleted:
            continue
        task.status = STATUS_AFTER_ROUND.get(state.status, state.status)
        is_pending = task.status is Status.PENDING
        task.node, task.devices = ("", ()) if is_pending else (state.node, state.devices)


def _differences(table: Mapping[str, Any], case: TableCase, session: Session, *, planned: bool) -> Iterator[str]:
    states = _task_states(session)
    for job in case.jobs:
        expected = (table.get("JobExpectedResults") or {}).get(job.name)
        if expected:
            for t in job.tasks:
                yield from _compare_task(t, states[t.name], expected, planned=planned)
    for t in (t for j in case.jobs for t in j.tasks):
        expected = (table.get("TaskExpectedResults") or {}).get(t.name)
        if expected:
            yield from _compare_task(t, states[t.name], expected, planned=planned)
    yield from _compare_gpu_groups(table, case, states)
    for name, expected in (table.get("ExpectedNodesResources") or {}).items():
        node = session.nodes[name]
        idle = sum(u == 0 for u in node.used_per_device)
        releasing = sum(u > 0 and u == b for u, b in zip(node.used_per_device, node.releasing_per_device, strict=True))
        for field, value in (("IdleGPUs", idle), ("ReleasingGPUs", releasing)):
            if field in expected and expected[field] != value:
                yield f"node {name}: {field} is {value:g}, expected {expected[field]:g}"


def _compare_task(t: TableTask, state: TaskState, expected: Mapping[str, Any], *, planned: bool) -> Iterator[str]:
    status = STATUS_PLANNED.get(state.status, str(state.status)) if planned else str(t.status)
    if t.status is Status.BOUND and state.status is Status.BOUND:
        status = "Bound"
    expected_status = expected.get("Status")
    if expected_status and status != expected_status:
        yield f"{t.name} is {status}{f' on {state.node}' if state.node else ''}, expected {expected_status}"
    node = expected.get("NodeName")
    if node and expected_status != "Pending" and state.node != node:
        yield f"{t.name} is on {state.node or 'no node'}, expected {node}"


def _compare_gpu_groups(table: Mapping[str, Any], case: TableCase, states: Mapping[str, TaskState]) -> Iterator[str]:
    """Expected groups name cards up to renaming: same name, same card; other name of the same node, another card."""
    cards: dict[tuple[str, str], int] = {}
    for job in case.jobs:
        expected = (table.get("JobExpectedResults") or {}).get(job.name) or {}
        groups = expected.get("GPUGroups") or ()
        if not groups or expected.get("DontValidateGPUGroup"):
            continue
        for t in job.tasks:
            state = states[t.name]
            if (
                not t.shape.is_fractional
                or state.status is Status.PIPELINED
                or not state.node
                or len(state.devices) != len(groups)
            ):
                continue
            for group, card in zip(groups, state.devices, strict=True):
                if cards.setdefault((state.node, group), card) != card:
                    yield f"{t.name} is on card {card} of {state.node}, not with the others of group {group}"


def _compare_eviction_count(table: Mapping[str, Any], case: TableCase, session: Session) -> str:
    """No more evictions than KAI needs."""
    limits = ((table.get("Mocks") or {}).get("CacheRequirements") or {}) or {}
    if "NumberOfCacheEvictions" not in limits:
        return ""
    started = {t.name: t.status for j in case.jobs for t in j.tasks}
    evicted = sum(
        state.origin is not None or (state.status is Status.RELEASING and started[name] is not Status.RELEASING)
        for name, state in _task_states(session).items()
    )
    limit = int(limits["NumberOfCacheEvictions"])
    return f"{evicted} evictions, expected at most {limit}" if evicted > limit else ""


def run_file(path: Path) -> list[TableResult]:
    """Every table of a file of this format."""
    data = json.loads(path.read_text())
    return [check_table(table) for table in (data["cases"] if isinstance(data, dict) else data)]


def main(arguments: list[str]) -> int:
    if len(arguments) != 1:
        print("usage: python -m tests.scheduling.kai_tables FILE.json", file=sys.stderr)
        return 2
    path = Path(arguments[0])
    if not path.is_file():
        print(f"{path}: no such file; give a JSON file of KAI test tables", file=sys.stderr)
        return 2
    results = run_file(path)
    for result in results:
        print(result)
    failed = sum(v.outcome == "FAIL" for v in results)
    skipped = sum(v.outcome == "skip" for v in results)
    print(f"{len(results) - failed - skipped} of {len(results)} passed, {failed} failed, {skipped} not applicable")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
