"""What is said of a cluster before anything is served over it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from rowlock import kinds
from rowlock.api import Page
from rowlock.errors import ApiError, Conflict, Forbidden, NotFound, Unavailable
from rowlock.kinds import Kind
from rowlock.kube.installation import BIND_REQUEST, choose_dialect, require_kinds


class Lists:
    """An API whose lists fail for some kinds."""

    def __init__(self, refused: dict[Kind, ApiError]) -> None:
        self.refused = refused

    async def list(self, kind: Kind, namespace: str = "", **_: Any) -> Page:
        if kind in self.refused:
            raise self.refused[kind]
        return Page([], 1, "", None)


def notice(refused: dict[Kind, ApiError]) -> str:
    return asyncio.run(require_kinds(Lists(refused), install=False))  # type: ignore[arg-type]


def test_a_cluster_with_everything_needs_no_words() -> None:
    assert notice({}) == ""


KAI_ABSENT: dict[Kind, ApiError] = {BIND_REQUEST: NotFound("no")}
KAI_UNSEEN: dict[Kind, ApiError] = {BIND_REQUEST: Forbidden("no")}


def dialect(choice: str, refused: dict[Kind, ApiError]) -> tuple[str, str]:
    chosen, consequence = asyncio.run(choose_dialect(Lists(refused), choice))  # type: ignore[arg-type]
    return chosen.name, consequence


def test_jobs_go_to_kai_where_it_is_and_else_to_the_cluster() -> None:
    assert dialect("auto", {}) == ("kai", "")
    name, consequence = dialect("auto", KAI_ABSENT)
    assert name == "cluster" and "no gang scheduler" in consequence and "--scheduler own" in consequence
    name, consequence = dialect("auto", KAI_UNSEEN)
    assert name == "cluster" and "may not list bindrequests.scheduling.run.ai" in consequence


def test_a_scheduler_that_was_chosen_is_taken_or_refused() -> None:
    assert dialect("own", KAI_ABSENT) == ("own", "")
    assert dialect("kai", KAI_UNSEEN) == ("kai", "")
    assert "no gang scheduler" in dialect("cluster", {})[1]
    with pytest.raises(Conflict, match="two gang schedulers"):
        dialect("own", {})
    with pytest.raises(Unavailable, match="KAI Scheduler is not installed"):
        dialect("kai", KAI_ABSENT)


def test_missing_kinds_of_jobs_are_named_and_none_at_all_is_refused() -> None:
    assert "does not serve jaxjobs.kubeflow.org" in notice({kinds.JAXJOB: NotFound("no")})
    with pytest.raises(Unavailable, match="training operator"):
        notice({kind: NotFound("no") for kind in kinds.JOBS})


def test_a_missing_queue_is_refused_with_what_to_do() -> None:
    with pytest.raises(Unavailable, match=r"queues\.scheduling\.run\.ai: install KAI Scheduler.*--install-crds"):
        notice({kinds.QUEUE: NotFound("no")})
