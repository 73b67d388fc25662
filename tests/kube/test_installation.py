"""What is said of a cluster before anything is served over it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from rowlock import kinds
from rowlock.api import Page
from rowlock.errors import ApiError, Forbidden, NotFound, Unavailable
from rowlock.kinds import Kind
from rowlock.kube.installation import BIND_REQUEST, require_kinds


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


def test_a_missing_gang_scheduler_is_told_apart_from_one_that_may_not_be_seen() -> None:
    assert "no gang scheduler" in notice({BIND_REQUEST: NotFound("no")})
    assert "may not list bindrequests.scheduling.run.ai" in notice({BIND_REQUEST: Forbidden("no")})


def test_missing_kinds_of_jobs_are_named_and_none_at_all_is_refused() -> None:
    assert "does not serve jaxjobs.kubeflow.org" in notice({kinds.JAXJOB: NotFound("no")})
    with pytest.raises(Unavailable, match="training operator"):
        notice({kind: NotFound("no") for kind in kinds.JOBS})


def test_a_missing_queue_is_refused_with_what_to_do() -> None:
    with pytest.raises(Unavailable, match=r"queues\.scheduling\.run\.ai: install KAI Scheduler.*--install-crds"):
        notice({kinds.QUEUE: NotFound("no")})
