"""Large writes, checked beside the event loop: admission of the largest objects takes a processor a fifth of a second.

A `Rehearsal` has the verbs of `Core` and changes nothing. It runs in another thread, where each question to the store is answered
on the event loop and noted. If all answers are still the same when it has ended, its outcome is what the verb would give now,
and `carry_out` stages it; otherwise somebody else's write came between, and it begins again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from dataclasses import replace
from typing import Any, TypeVar

from msgspec import structs

from rowlock.api import View, WriteOptions
from rowlock.controllers.turn_budget import FairTurns
from rowlock.errors import ApiError
from rowlock.kinds import Kind
from rowlock.objects import Key, Object, is_same_version
from rowlock.storage.write_verbs import ChangeType, Core, check_size, encode

Answer = TypeVar("Answer")
Verb = Callable[[Core, WriteOptions], Object]
"""A write: `lambda core, options: core.create(kind, obj, options)`."""
ATTEMPTS = 3
"""How often a write is rehearsed before it is done on the event loop."""


class RecordedReads:
    """A `View` for another thread: its answers come from the event loop, and are remembered."""

    def __init__(self, view: View, loop: asyncio.AbstractEventLoop) -> None:
        self._view, self._loop = view, loop
        self._answers: list[tuple[Callable[[], Any], Any]] = []
        """Questions refer to the view and not to this, which would be a cycle: those are collected once an hour, and answers may be large."""

    def ask(self, question: Callable[[], Answer]) -> Answer:
        """The answer of the event loop to a question that changes nothing; what it raises is raised here."""
        answer: Future[Answer] = Future()
        self._loop.call_soon_threadsafe(_find_answer, question, answer)
        return answer.result()

    def still_hold(self) -> bool:
        """Whether each question has the answer that it had. On the event loop."""
        return all(_is_same(question(), answer) for question, answer in self._answers)

    def _note(self, question: Callable[[], Answer]) -> Answer:
        answer = self.ask(question)
        self._answers.append((question, answer))
        return answer

    # ------------------------------------------------------------ View

    @property
    def revision(self) -> int:
        return self.ask(lambda: self._view.revision)

    def get(self, kind: Kind, namespace: str, name: str) -> Object | None:
        view = self._view
        return self._note(lambda: view.get(kind, namespace, name))

    def metadata(self, kind: Kind, namespace: str, name: str) -> dict[str, Any] | None:
        view = self._view
        return self._note(lambda: view.metadata(kind, namespace, name))

    def has_ended(self, kind: Kind, namespace: str, name: str) -> bool:
        view = self._view
        return self._note(lambda: view.has_ended(kind, namespace, name))

    def all(self, kind: Kind, namespace: str = "") -> Iterable[Object]:
        view = self._view
        return self._note(lambda: list(view.all(kind, namespace)))

    def keys(self, kind: Kind, namespace: str = "") -> Iterable[Key]:
        view = self._view
        return self._note(lambda: list(view.keys(kind, namespace)))

    def by_owner(self, kind: Kind, uid: str) -> Iterable[Object]:
        view = self._view
        return self._note(lambda: list(view.by_owner(kind, uid)))

    def by_label(self, kind: Kind, namespace: str, label: str, value: str) -> Iterable[Object]:
        view = self._view
        return self._note(lambda: list(view.by_label(kind, namespace, label, value)))


def _find_answer(question: Callable[[], Answer], answer: Future[Answer]) -> None:
    try:
        answer.set_result(question())
    except Exception as error:  # noqa: BLE001 (raised in the thread that asks)
        answer.set_exception(error)
    finally:
        del answer  # an error has this frame: a cycle


def _is_same(now: Any, before: Any) -> bool:
    """Whether both are the same version of an object, or of objects in a list. They need not be identical: the store decodes finished
    ones anew."""
    if isinstance(now, list) and isinstance(before, list):
        return len(now) == len(before) and all(map(_is_same, now, before))
    if isinstance(now, dict) and isinstance(before, dict):
        return is_same_version(before, now)
    return bool(now == before)


class Rehearsal(Core):
    """One write as `core` would do it; make it on the event loop, `run` it in another thread, then `carry_out` on the loop."""

    def __init__(self, core: Core, options: WriteOptions) -> None:
        self._real, self._options = core, options
        self._recorded = RecordedReads(core.reads, asyncio.get_running_loop())
        self._changes: list[tuple[ChangeType, Kind, Key, Object, Object | None]] = []
        self._warnings: list[str] = []
        self._outcome: Object | ApiError = {}
        ask, given = self._recorded.ask, core.dependencies
        super().__init__(replace(given, new_uid=lambda: ask(given.new_uid)), self._recorded)

    def run(self, write: Verb) -> None:
        """Decide the write, also when the decision is to refuse it."""
        ask, review, may_use_queue = self._recorded.ask, self._options.review, self._options.may_use_queue
        options = structs.replace(
            self._options,
            warnings=self._warnings,
            review=review and (lambda old, new: ask(lambda: review(old, new))),
            may_use_queue=may_use_queue and (lambda queue: ask(lambda: may_use_queue(queue))),
        )
        try:
            self._outcome = write(self, options)
        except ApiError as error:
            self._outcome = error

    @property
    def still_holds(self) -> bool:
        return self._recorded.still_hold()

    def carry_out(self) -> Object:
        """Stage what `run` has decided, or raise its refusal."""
        self._options.warnings.extend(self._warnings)
        outcome = self._outcome
        if isinstance(outcome, ApiError):
            self._outcome = {}
            try:
                raise outcome
            finally:
                del outcome  # its traceback has the frames of this and of `run`: a cycle
        result = outcome
        for change in self._changes:
            staged = self._real.stage(*change)
            result = staged if change[3] is outcome else result
        return result

    def stage(self, type: ChangeType, kind: Kind, key: Key, obj: Object, old: Object | None) -> Object:
        check_size(type, kind, obj, encode(obj))
        self._changes.append((type, kind, key, obj, old))
        return obj


class LargeWrites:
    """Rehearses one write at a time; namespaces take turns."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._turns = FairTurns()

    async def rehearse(self, write: Verb, namespace: str, options: WriteOptions) -> Rehearsal | None:
        """A rehearsal to `carry_out` before anything else is awaited; None when others' writes came between again and again."""
        for _ in range(ATTEMPTS):
            async with self._turns.take(namespace):
                rehearsal = Rehearsal(self._core, options)
                await asyncio.to_thread(rehearsal.run, write)
            if rehearsal.still_holds:
                return rehearsal
        return None
