"""`python -m rowlock.scheduling.tables FILE.json`: KAI's own test tables, played by this planner.

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

from rowlock.scheduling.planner import Planner
from rowlock.scheduling.snapshot import Status
from rowlock.scheduling.table_cases import Case, TableTask, not_applicable, read
from rowlock.scheduling.world import TaskState, World, build

ROUNDS, ROUNDS_AFTER = 2, 5
PLANNED = {Status.ALLOCATED: "Binding", Status.BOUND: "Binding"}
AFTER = {
    Status.RELEASING: Status.PENDING,
    Status.PIPELINED: Status.PENDING,
    Status.ALLOCATED: Status.RUNNING,
    Status.BOUND: Status.RUNNING,
}


@dataclass(frozen=True, slots=True)
class Verdict:
    name: str
    outcome: str
    """ok, FAIL or skip."""
    detail: str = ""

    def __str__(self) -> str:
        return f"{self.outcome} {self.name}" + (f": {self.detail}" if self.detail else "")


def title(table: Mapping[str, Any]) -> str:
    return str(table.get("Name") or (table.get("_outer") or {}).get("name") or table.get("_line") or "unnamed")


def check(table: Mapping[str, Any]) -> Verdict:
    """Play one table."""
    outside = not_applicable(table)
    if outside:
        return Verdict(title(table), "skip", f"{outside} is outside our fence")
    case = read(table)
    if "integration_tests" in str(table.get("_file")):
        detail = _rounds(table, case)
    else:
        world = _play(case)
        detail = next(_differences(table, case, world, planned=True), "") or _counts(table, case, world)
    return Verdict(title(table), "FAIL" if detail else "ok", detail)


def _play(case: Case) -> World:
    planner = Planner(build(case.snapshot()))
    planner.cycle(keep=True)
    return planner.world


def _rounds(table: Mapping[str, Any], case: Case) -> str:
    outer = table.get("_outer") or {}
    until = int(outer.get("RoundsUntilMatch") or ROUNDS)
    after = int(outer.get("RoundsAfterMatch", ROUNDS_AFTER))
    for at in range(1, until + after + 1):
        world = _play(case)
        _advance(case, world)
        if at >= until and (found := next(_differences(table, case, world, planned=False), "")):
            return f"round {at}: {found}"
    return ""


def _states(world: World) -> dict[str, TaskState]:
    return {t.task.name: t for g in world.gangs.values() for t in g.tasks}


def _advance(case: Case, world: World) -> None:
    """What happens between rounds: bound pods run, evicted ones are made again, deleted jobs keep leaving."""
    for name, state in _states(world).items():
        task = next(t for j in case.jobs for t in j.tasks if t.name == name)
        if state.status is Status.RELEASING and task.job.deleted:
            continue
        task.status = AFTER.get(state.status, state.status)
        gone = task.status is Status.PENDING
        task.node, task.devices = ("", ()) if gone else (state.node, state.devices)


def _differences(table: Mapping[str, Any], case: Case, world: World, *, planned: bool) -> Iterator[str]:
    states = _states(world)
    for job in case.jobs:
        expected = (table.get("JobExpectedResults") or {}).get(job.name)
        if expected:
            for t in job.tasks:
                yield from _compare(t, states[t.name], expected, planned=planned)
    for t in (t for j in case.jobs for t in j.tasks):
        expected = (table.get("TaskExpectedResults") or {}).get(t.name)
        if expected:
            yield from _compare(t, states[t.name], expected, planned=planned)
    yield from _groups(table, case, states)
    for name, expected in (table.get("ExpectedNodesResources") or {}).items():
        node = world.nodes[name]
        idle = sum(u == 0 for u in node.used)
        releasing = sum(u > 0 and u == b for u, b in zip(node.used, node.back, strict=True))
        for what, have in (("IdleGPUs", idle), ("ReleasingGPUs", releasing)):
            if what in expected and expected[what] != have:
                yield f"node {name}: {what} is {have:g}, expected {expected[what]:g}"


def _compare(t: TableTask, state: TaskState, expected: Mapping[str, Any], *, planned: bool) -> Iterator[str]:
    status = PLANNED.get(state.status, str(state.status)) if planned else str(t.status)
    if t.status is Status.BOUND and state.status is Status.BOUND:
        status = "Bound"
    wanted = expected.get("Status")
    if wanted and status != wanted:
        yield f"{t.name} is {status}{f' on {state.node}' if state.node else ''}, expected {wanted}"
    node = expected.get("NodeName")
    if node and wanted != "Pending" and state.node != node:
        yield f"{t.name} is on {state.node or 'no node'}, expected {node}"


def _groups(table: Mapping[str, Any], case: Case, states: Mapping[str, TaskState]) -> Iterator[str]:
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
                not t.shape.fractional
                or state.status is Status.PIPELINED
                or not state.node
                or len(state.devices) != len(groups)
            ):
                continue
            for group, card in zip(groups, state.devices, strict=True):
                if cards.setdefault((state.node, group), card) != card:
                    yield f"{t.name} is on card {card} of {state.node}, not with the others of group {group}"


def _counts(table: Mapping[str, Any], case: Case, world: World) -> str:
    """No more evictions than KAI needs."""
    most = ((table.get("Mocks") or {}).get("CacheRequirements") or {}) or {}
    if "NumberOfCacheEvictions" not in most:
        return ""
    started = {t.name: t.status for j in case.jobs for t in j.tasks}
    evicted = sum(
        state.origin is not None or (state.status is Status.RELEASING and started[name] is not Status.RELEASING)
        for name, state in _states(world).items()
    )
    limit = int(most["NumberOfCacheEvictions"])
    return f"{evicted} evictions, expected at most {limit}" if evicted > limit else ""


def run(path: Path) -> list[Verdict]:
    """Every table of a file of this format."""
    data = json.loads(path.read_text())
    return [check(table) for table in (data["cases"] if isinstance(data, dict) else data)]


def main(arguments: list[str]) -> int:
    if len(arguments) != 1:
        print("usage: python -m rowlock.scheduling.tables FILE.json", file=sys.stderr)
        return 2
    path = Path(arguments[0])
    if not path.is_file():
        print(f"{path}: no such file; give a JSON file of KAI test tables", file=sys.stderr)
        return 2
    verdicts = run(path)
    for verdict in verdicts:
        print(verdict)
    failed = sum(v.outcome == "FAIL" for v in verdicts)
    skipped = sum(v.outcome == "skip" for v in verdicts)
    print(f"{len(verdicts) - failed - skipped} of {len(verdicts)} passed, {failed} failed, {skipped} not applicable")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
