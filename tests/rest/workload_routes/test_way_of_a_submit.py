"""How far a submit travels through the rooms that know workloads: a reader who follows a rule from call to call reads no more than this."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from tests.kubelet.worker.test_way_of_a_pod import Stop, Watched
from tests.rest.conftest import World

import rowlock
from rowlock.rest.app import RestApi
from rowlock.rest.call import RestCall
from rowlock.workloads.objects import SubmitPlan
from rowlock.workloads.runai_json import Workload
from rowlock.workloads.submission import Submission

STOPS = 79
"""Functions of `rest/` and `workloads/` to which the request hands the submit, or its job, before it is answered."""
PACKAGE = Path(rowlock.__file__).parent
ROOMS = (f"{PACKAGE}/rest/", f"{PACKAGE}/workloads/")


@contextmanager
def watch(
    monkeypatch: pytest.MonkeyPatch, owner: type, name: str, carries: Callable[[Any], bool]
) -> Iterator[set[Stop]]:
    """The functions of the package that are handed something that `carries` tells, while a coroutine method works."""
    stops: set[Stop] = set()
    work = getattr(owner, name)

    def note_call(frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(ROOMS) and not code.co_name.startswith("<"):
            names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
            if any(carries(frame.f_locals.get(name)) for name in names):
                stops.add((code.co_filename.removeprefix(str(PACKAGE)), code.co_name))

    async def watched(*args: Any) -> Any:
        return await Watched(work(*args), note_call)

    monkeypatch.setattr(owner, name, watched)
    yield stops
    monkeypatch.setattr(owner, name, work)


def shown(stops: set[Stop]) -> str:
    return f"{len(stops)} stops:\n" + "\n".join(f"{file}: {name}" for file, name in sorted(stops))


def is_submit(value: Any) -> bool:
    return isinstance(value, RestCall | Submission | SubmitPlan | Workload) or (
        isinstance(value, dict) and (value.get("kind") == "PyTorchJob" or "projectId" in value)
    )


def test_a_submit_passes_through_few_functions(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.project()
    with watch(monkeypatch, RestApi, "_serve", is_submit) as stops:
        assert world.submit().status_code == 202
    assert len(stops) <= STOPS, shown(stops)
