"""Debug containers of a played pod: added once, used again, bounded, and refused in plain words."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Sequence
from typing import Any

import pytest
from tests.kube_evidence.test_rank_observer import JOB, LOADS, Played, play_answer, pod, rank

from rowlock.api import WRITE, PatchType, WriteOptions
from rowlock.errors import ApiError, Conflict, Forbidden, Invalid, NotFound, Unavailable
from rowlock.kinds import POD, Kind
from rowlock.kube.proxy.container_command import CommandResult
from rowlock.kube_evidence import debug_container, rank_probe
from rowlock.kube_evidence.debug_container import MAX_CONTAINERS, DebugContainers, NoDebugContainer
from rowlock.kube_evidence.rank_observer import RankObserver
from rowlock.objects import Object

IMAGE = "registry.example/rowlock:1"
RUNS = {"running": {"startedAt": "2026-01-02T03:14:05Z"}}
BLIND = [rank("0", (), blind="py-spy is not in the image")]


class PlayedPod(Played):
    """A pod whose debug containers reach `states`, one after the other; the last one stays."""

    def __init__(self, *states: Any, answers: dict[str, Any] | None = None, refusals: Sequence[Exception] = ()) -> None:
        super().__init__({"j-master-0": BLIND})
        self.now, self.states, self.refusals = pod("master"), list(states), list(refusals)
        self.debug_answers = answers or {}
        self.patches: list[Object] = []

    async def get(self, kind: Kind, namespace: str, name: str) -> Object:
        assert (kind, namespace, name) == (POD, "n", "j-master-0")
        await asyncio.sleep(0)
        found = copy.deepcopy(self.now)
        begun = [one for one in found["spec"].get("ephemeralContainers", ()) if one["name"] not in self._statuses()]
        if begun and self.states:
            state = self.states.pop(0) if len(self.states) > 1 else self.states[0]
            found["status"].setdefault("ephemeralContainerStatuses", []).extend(
                {"name": one["name"], "state": state} for one in begun
            )
        return found

    def _statuses(self) -> dict[str, Any]:
        return {one["name"]: one for one in self.now["status"].get("ephemeralContainerStatuses", ())}

    async def patch(
        self, kind: Kind, namespace: str, name: str, patch: Any, *, type: PatchType = "merge", subresource: str = "",
        options: WriteOptions = WRITE,
    ) -> Object:  # fmt: skip
        assert (kind, namespace, name) == (POD, "n", "j-master-0")
        assert (type, subresource, patch["metadata"]) == ("strategic", "ephemeralcontainers", {"uid": "master"})
        self.patches.append(patch)
        await asyncio.sleep(0)
        if self.refusals:
            raise self.refusals.pop(0)
        self.now["spec"].setdefault("ephemeralContainers", []).extend(patch["spec"]["ephemeralContainers"])
        return self.now

    def has(self, number: int, state: Any, image: str = IMAGE) -> PlayedPod:
        """With a debug container of before."""
        name = f"rowlock-debug-{number}"
        self.now["spec"].setdefault("ephemeralContainers", []).append({"name": name, "image": image})
        self.now["status"].setdefault("ephemeralContainerStatuses", []).append({"name": name, "state": state})
        return self

    async def run(
        self, connection: Any, place: tuple[str, str, str], command: Sequence[str], timeout: float, stdin: bytes
    ) -> CommandResult:
        if place[2] == "pytorch":
            return await super().run(connection, place, command, timeout, stdin)
        self.asked.append(place)
        assert tuple(command[:4]) == debug_container.PYTHON and 0 < timeout <= 20.0
        assert list(command[5:]) == [rank_probe.FROM_OUTSIDE]
        return play_answer(self.debug_answers[place[2]])


async def ensured(kube: PlayedPod, debug: DebugContainers | None = None) -> str:
    deadline = asyncio.get_running_loop().time() + 30
    return await (debug or DebugContainers(IMAGE)).ensure_running(kube, pod("master"), deadline)


def refused(kube: PlayedPod) -> str:
    with pytest.raises(NoDebugContainer) as error:
        asyncio.run(ensured(kube))
    return str(error.value)


def observed(kube: PlayedPod) -> dict[str, Any]:
    observer = RankObserver(run=kube.run, debug_image=IMAGE)
    observer.pods_of = lambda uid: [pod("master")]
    return asyncio.run(observer.observe(kube, JOB))


def test_one_is_added_that_sees_the_first_container(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(debug_container, "_POLL_S", 0.001)
    kube = PlayedPod({}, {"waiting": {"reason": "ContainerCreating"}}, RUNS)
    assert asyncio.run(ensured(kube)) == "rowlock-debug-1"
    ((container,),) = [patch["spec"]["ephemeralContainers"] for patch in kube.patches]
    assert container["image"] == IMAGE and container["targetContainerName"] == "pytorch"
    assert container["command"][0] == "python3" and container["command"][-1] == "import time; time.sleep(600)"
    assert container["securityContext"]["capabilities"] == {"add": ["SYS_PTRACE"]}
    assert container["securityContext"]["runAsUser"] == 0 and not container["securityContext"]["runAsNonRoot"]


def test_who_asks_at_the_same_time_gets_the_same_one() -> None:
    kube = PlayedPod(RUNS)

    async def two() -> list[str]:
        debug = DebugContainers(IMAGE)
        return list(await asyncio.gather(ensured(kube, debug), ensured(kube, debug)))

    assert asyncio.run(two()) == ["rowlock-debug-1"] * 2 and len(kube.patches) == 1


def test_one_that_runs_is_used_again_and_one_that_ended_or_is_of_another_image_is_not() -> None:
    ended = {"terminated": {"exitCode": 0, "reason": "Completed"}}
    assert asyncio.run(ensured(PlayedPod().has(1, ended).has(2, RUNS))) == "rowlock-debug-2"
    assert asyncio.run(ensured(PlayedPod(RUNS).has(1, ended))) == "rowlock-debug-2"
    assert asyncio.run(ensured(PlayedPod(RUNS).has(7, RUNS, image="other:1"))) == "rowlock-debug-8"
    never = {"terminated": {"exitCode": 128, "reason": "StartError", "message": "no python3"}}
    assert asyncio.run(ensured(PlayedPod(RUNS).has(2, ended).has(1, never))) == "rowlock-debug-3", (
        "newer ones come first"
    )
    assert asyncio.run(ensured(PlayedPod().has(2, never).has(1, RUNS))) == "rowlock-debug-1"
    assert "cannot run python3" in refused(PlayedPod().has(2, never).has(1, ended))


def test_a_pod_gets_five_and_no_more() -> None:
    kube = PlayedPod(RUNS)
    for number in range(1, MAX_CONTAINERS + 1):
        kube.has(number, {"terminated": {"exitCode": 137, "reason": "Error"}})
    assert refused(kube) == "the pod has had 5, and none can be removed from it" and not kube.patches


@pytest.mark.parametrize("first", [Conflict("somebody wrote"), Invalid("existing ones may not be changed")])
def test_who_was_second_looks_again(first: ApiError) -> None:
    kube = PlayedPod(RUNS, refusals=[first])
    assert asyncio.run(ensured(kube)) == "rowlock-debug-1" and len(kube.patches) == 2
    kube = PlayedPod(RUNS, refusals=[first] * 3)
    assert refused(kube) == first.message and len(kube.patches) == 3


SECURITY = (
    'pods "j-master-0" is forbidden: violates PodSecurity "baseline:latest": non-default capabilities (container'
    ' "rowlock-debug-1" must not include "SYS_PTRACE" in securityContext.capabilities.add)'
)
RIGHTS = (
    'pods "j-master-0" is forbidden: User "ana" cannot patch resource "pods/ephemeralcontainers" in API group ""'
    ' in the namespace "n"'
)


@pytest.mark.parametrize(
    ("kube", "reason"),
    [
        (PlayedPod(refusals=[Forbidden(SECURITY)]), "the Pod Security of its namespace (baseline) refuses SYS_PTRACE"),
        (PlayedPod(refusals=[Forbidden(RIGHTS)]), "you may not `patch` `pods/ephemeralcontainers`"),
        (PlayedPod(refusals=[Forbidden("a webhook says no")]), "a webhook says no"),
        (PlayedPod(refusals=[NotFound("no such resource")]), "no such resource"),
        (
            PlayedPod({"waiting": {"reason": "ErrImagePull", "message": "not found"}}),
            f"its image {IMAGE} cannot be pulled (ErrImagePull: not found)",
        ),
        (
            PlayedPod().has(1, {"waiting": {"reason": "ImagePullBackOff"}}),
            f"its image {IMAGE} cannot be pulled (ImagePullBackOff: )",
        ),
        (
            PlayedPod({"waiting": {"reason": "CreateContainerConfigError", "message": "no\nroot"}}),
            "it cannot start (CreateContainerConfigError: no root)",
        ),
        (
            PlayedPod().has(1, {"terminated": {"exitCode": 128, "reason": "StartError", "message": "no python3"}}),
            f"its image {IMAGE} cannot run python3 (no python3)",
        ),
        (
            PlayedPod({"terminated": {"exitCode": 1, "reason": "Error"}}),
            "it has ended (Error: exit code 1)",
        ),
    ],
)  # fmt: skip
def test_what_stands_in_the_way_is_told(kube: PlayedPod, reason: str) -> None:
    assert refused(kube) == reason


def test_one_that_does_not_come_up_in_time_is_told_with_what_it_waits_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(debug_container, "START_S", 0.05)
    monkeypatch.setattr(debug_container, "_POLL_S", 0.001)
    kube = PlayedPod({"waiting": {"reason": "ContainerCreating"}})
    assert refused(kube) == "it does not run after 0 s (ContainerCreating): ask again"


def test_a_pod_that_shares_processes_gets_none_and_neither_does_its_successor() -> None:
    async def ensure(**changed: Any) -> None:
        target = pod("master")
        target["spec"] |= changed
        await DebugContainers(IMAGE).ensure_running(kube, target, asyncio.get_running_loop().time() + 30)

    for name in ("hostPID", "shareProcessNamespace"):
        kube = PlayedPod(RUNS)
        with pytest.raises(NoDebugContainer, match="processes of other containers"):
            asyncio.run(ensure(**{name: True}))
        assert not kube.patches
    kube = PlayedPod(RUNS)
    kube.now["metadata"]["uid"] = "another"
    with pytest.raises(NoDebugContainer, match="the pod has gone"):
        asyncio.run(ensure())
    assert not kube.patches


# ------------------------------------------------------------ what `why` says then


def test_stacks_from_a_debug_container_count() -> None:
    kube = PlayedPod(RUNS, answers={"rowlock-debug-1": [rank("0", LOADS)]})
    answer = observed(kube)
    assert [(one["stack"][:1], one["blind"]) for one in answer["ranks"]] == [(["load (t.py:12)"], "")], answer
    assert kube.asked == [("n", "j-master-0", "pytorch"), ("n", "j-master-0", "rowlock-debug-1")]


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ([rank("0", (), blind="py-spy: No")], "the debug container sees no more: py-spy: No"),
        ([], "the debug container sees no more: it sees no Python process"),
        (CommandResult(b"{", "", ""), "the debug container sees no more: what the container answered cannot be read"),
        (Unavailable("the stream broke"), "the debug container cannot be asked: the stream broke"),
    ],
)
def test_a_debug_container_that_sees_no_more_is_told(answer: Any, reason: str) -> None:
    sentence = observed(PlayedPod(RUNS, answers={"rowlock-debug-1": answer}))["verdict"]["sentence"]
    assert sentence.endswith(f"cannot be read: py-spy is not in the image; {reason}."), sentence
    kube = PlayedPod(refusals=[Forbidden(RIGHTS)])
    kube.answers["j-master-0"] = CommandResult(b"", "", "command terminated with exit code 44")
    assert observed(kube)["verdict"]["sentence"].endswith(
        "they are not Python programs; no debug container: you may not `patch` `pods/ephemeralcontainers`."
    )


@pytest.mark.parametrize(
    "first", [[rank("0", LOADS)], Forbidden("you may not exec"), Unavailable("no answer within 20 s")]
)
def test_none_is_added_where_stacks_are_there_or_exec_does_not_work(first: Any) -> None:
    kube = PlayedPod(RUNS)
    kube.answers["j-master-0"] = first
    answer = observed(kube)
    assert not kube.patches and "debug" not in answer["verdict"]["sentence"]


def test_late_in_a_look_none_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rowlock.kube_evidence.rank_observer._LOOK_S", 0.0)
    kube = PlayedPod(RUNS)
    assert "no debug container: it does not run after 0 s: ask again" in observed(kube)["verdict"]["sentence"]
