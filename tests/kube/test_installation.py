"""What is said of a cluster before anything is served over it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from rowlock import kinds
from rowlock.api import Page
from rowlock.errors import ApiError, BadRequest, Conflict, Forbidden, NotFound, Unavailable
from rowlock.gangs.dialects import BIND_REQUEST, EARLIER_LOCAL_QUEUE, INSTALLED, KUEUE, LOCAL_QUEUE, VOLCANO
from rowlock.kinds import Kind
from rowlock.kube.installation import choose_dialect, require_kinds


class Lists:
    """An API whose lists fail for some kinds."""

    def __init__(self, refused: dict[Kind, ApiError]) -> None:
        self.refused = refused

    async def list(self, kind: Kind, namespace: str = "", **_: Any) -> Page:
        if kind in self.refused:
            raise self.refused[kind]
        return Page([], 1, "", None)


def notice(refused: dict[Kind, ApiError], *, has_scheduler: bool = False) -> str:
    api = Lists(refused)
    return "; ".join(asyncio.run(require_kinds(api, install=False, has_scheduler=has_scheduler)))  # type: ignore[arg-type]


def test_a_cluster_with_everything_needs_no_words() -> None:
    assert notice({}) == ""


OTHERS_ABSENT: dict[Kind, ApiError] = {
    release.proof: NotFound("no")
    for d in INSTALLED
    for release in d.releases()
    if release.proof is not None and release.proof is not BIND_REQUEST
}
KAI_ABSENT: dict[Kind, ApiError] = {BIND_REQUEST: NotFound("no"), **OTHERS_ABSENT}
KAI_UNSEEN: dict[Kind, ApiError] = {BIND_REQUEST: Forbidden("no"), **OTHERS_ABSENT}


def dialect(choice: str, refused: dict[Kind, ApiError]) -> tuple[str, str]:
    chosen, consequence = asyncio.run(choose_dialect(Lists(refused), choice))  # type: ignore[arg-type]
    return chosen.name, consequence


def test_jobs_go_to_kai_where_it_is_and_else_to_the_cluster() -> None:
    assert dialect("auto", {}) == ("kai", "")
    name, consequence = dialect("auto", KAI_ABSENT)
    assert name == "cluster" and "no gang scheduler" in consequence and "--scheduler own" in consequence
    name, consequence = dialect("auto", KAI_UNSEEN)
    assert name == "cluster" and "may not list bindrequests.scheduling.run.ai" in consequence


def test_auto_takes_what_is_installed_in_the_order_of_the_table() -> None:
    assert VOLCANO.proof is not None and KUEUE.proof is not None
    without_volcano = {k: e for k, e in KAI_ABSENT.items() if k not in (VOLCANO.proof, KUEUE.proof)}
    name, consequence = dialect("auto", without_volcano)
    assert name == "volcano" and "Volcano's queues" in consequence
    assert dialect("auto", {**without_volcano, VOLCANO.proof: NotFound("no")})[0] == "kueue"
    with pytest.raises(Unavailable, match="Volcano is not installed"):
        dialect("volcano", KAI_ABSENT)
    with pytest.raises(BadRequest, match="not volcanoe"):
        dialect("volcanoe", KAI_ABSENT)


@pytest.mark.parametrize(
    ("absent", "served"),
    [((), LOCAL_QUEUE), ((LOCAL_QUEUE,), EARLIER_LOCAL_QUEUE), ((EARLIER_LOCAL_QUEUE,), LOCAL_QUEUE)],
)
@pytest.mark.parametrize("choice", ["auto", "kueue"])
def test_kueue_is_spoken_to_as_its_release_wants(choice: str, absent: tuple[Kind, ...], served: Kind) -> None:
    queues = (LOCAL_QUEUE, EARLIER_LOCAL_QUEUE)
    refused = {k: e for k, e in KAI_ABSENT.items() if k not in queues} | {k: NotFound("no") for k in absent}
    chosen, _ = asyncio.run(choose_dialect(Lists(refused), choice))  # type: ignore[arg-type]
    assert (chosen.name, chosen.queue_kind) == ("kueue", served)
    with pytest.raises(Unavailable, match="Kueue is not installed"):
        dialect("kueue", KAI_ABSENT)


def test_a_scheduler_that_was_chosen_is_taken_or_refused() -> None:
    assert dialect("own", KAI_ABSENT) == ("own", "")
    assert dialect("kai", KAI_UNSEEN) == ("kai", "")
    assert "no gang scheduler" in dialect("cluster", {})[1]
    with pytest.raises(Conflict, match="two gang schedulers"):
        dialect("own", {})
    with pytest.raises(Unavailable, match="KAI Scheduler is not installed"):
        dialect("kai", KAI_ABSENT)


def test_missing_kinds_are_named_with_what_to_do() -> None:
    assert "does not serve jaxjobs.kubeflow.org" in notice({kinds.JAXJOB: NotFound("no")})
    assert "training operator, with `kubectl apply" in notice({kind: NotFound("no") for kind in kinds.JOBS})
    said = notice({kinds.QUEUE: NotFound("no")})
    assert "queues.scheduling.run.ai: install KAI Scheduler" in said and "--install-crds" in said


def test_a_missing_queue_is_refused_where_our_scheduler_would_need_it() -> None:
    with pytest.raises(Unavailable, match=r"queues\.scheduling\.run\.ai: install KAI Scheduler.*--install-crds"):
        notice({kinds.QUEUE: NotFound("no")}, has_scheduler=True)


def test_what_may_not_be_listed_is_named_and_taken_to_be_there() -> None:
    assert "does not show pytorchjobs.kubeflow.org to this server: no" in notice({kinds.PYTORCHJOB: Forbidden("no")})
    assert "does not show queues" in notice({kinds.QUEUE: Forbidden("no")}, has_scheduler=True)
