"""Which rank failed first, and why: one sentence about all ranks.

Causes take precedence over time: an error of a rank's own, a signal or an out-of-memory kill explains peers whose connections
broke, even when clocks and buffers suggest another order. Among causes the earliest wins. The others are always mentioned.
"""

from __future__ import annotations

import signal as signals
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from rowlock.diagnosis.hints import EXIT_CODES, LARGER_SHM, error_hint
from rowlock.diagnosis.log_errors import SEEN_BY_TORCHRUN
from rowlock.diagnosis.mpi_errors import SEEN_BY_MPIRUN
from rowlock.diagnosis.tracebacks import LoggedError

INCIDENT_GAP = 30.0
"""Seconds: a failure this soon after the one before belongs to the same incident."""
_HINTS = {
    signals.SIGBUS: f"often a full /dev/shm: {LARGER_SHM}",
    signals.SIGSEGV: "invalid memory access, in native code or an incompatible library",
    signals.SIGABRT: "the program aborted itself",
    signals.SIGILL: "an instruction that this CPU does not have: a library was built for another one",
    signals.SIGFPE: "a division by zero, or an overflow of integers, in native code",
    signals.SIGXCPU: "its limit of CPU time was reached (`ulimit -t`, RLIMIT_CPU)",
    signals.SIGXFSZ: "a file grew beyond the limit of sizes (`ulimit -f`, RLIMIT_FSIZE)",
    signals.SIGPIPE: "it wrote into a pipe or a connection that nobody read any more",
    signals.SIGSYS: "a system call that its sandbox (seccomp) forbids",
}


_EVICTIONS = {
    "EvictionByEvictionAPI": "was evicted, as `kubectl drain` of its node does it,",
    "DeletionByTaintManager": "was deleted since its node has a taint that it does not tolerate,",
    "PreemptionByScheduler": "was preempted by the cluster's scheduler",
    "DeletionByPodGC": "was deleted since its node has gone,",
}
"""Reasons of a pod's condition DisruptionTarget → what happened to it, where it was not its kubelet."""
_STOP_REASONS = "the job was suspended, scaled down or preempted, a pod was deleted, or a probe failed"


@dataclass(frozen=True, slots=True)
class RankFailure:
    """The end of one run of one rank that did not succeed. Times in seconds since the epoch."""

    rank: str
    """Its name in messages: `rank 1`, `worker-0`."""
    pod: str
    node: str
    code: int
    started: float
    finished: float
    run: int = 0
    signal: int = 0
    stopped: bool = False
    """The cluster had requested its end; it did not fail by itself."""
    reason: str = ""
    """Kubernetes' reason where the exit code does not tell: OOMKilled, StartError, or why the kubelet ended the pod (Evicted,
    DeadlineExceeded, Unhealthy, or any other reason in the pod's status)."""
    message: str = ""
    trouble: LoggedError | None = None
    said: str = ""
    """The last line of its log, if no error was recognised in it."""
    ranks: int = 0
    """The number of ranks of the job; 0 = unknown."""
    shortage: str = ""
    """A resource that its node refused before it ended, as a clause: a possible cause."""
    times: int = 1
    """How often it has ended so: more than once for an init container, whose last failure this is."""

    @property
    def failed_at(self) -> float:
        """When it failed: the time of its error if known, else of its end."""
        return self.trouble.at if self.trouble is not None and self.trouble.at else self.finished

    @property
    def rank_name(self) -> str:
        """The rank that its log names (one of several in the pod), else `rank`."""
        logged_rank = self.trouble.rank if self.trouble is not None else None
        return self.rank if logged_rank is None else f"rank {logged_rank}"

    @property
    def is_secondary(self) -> bool:
        """Whether it ended because another rank had failed."""
        if self.reason == "OOMKilled" or self.was_ended_by_node:
            return False
        if self.trouble is not None:
            return self.trouble.secondary
        return self.stopped or self.signal == signals.SIGTERM

    @property
    def was_told_to_end(self) -> bool:
        """Whether the cluster ended it, and nothing shows that it would have ended by itself: a program may handle the errors that it logs.
        Those that torch has prefixed with the rank are not handled."""
        is_unhandled = self.trouble is not None and self.trouble.rank is not None
        is_terminated = ending_signal(self.code, self.signal) == signals.SIGTERM
        return self.stopped and not self.reason and is_terminated and not is_unhandled

    @property
    def was_ended_by_node(self) -> bool:
        """Whether the kubelet ended it for a reason of its pod (evicted, deadline, unhealthy), which is in `message`."""
        return self.reason not in ("", "OOMKilled", "StartError")

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def failure_from_dict(fields: dict[str, Any]) -> RankFailure:
    """The inverse of `RankFailure.to_dict`. Raises TypeError for fields that it does not know."""
    error = fields.get("trouble")
    return RankFailure(**{**fields, "trouble": LoggedError(**error) if error else None})


def group_incidents(failures: Sequence[RankFailure]) -> list[list[RankFailure]]:
    """Failures grouped by incident, both in chronological order."""
    groups: list[list[RankFailure]] = []
    for failure in sorted(failures, key=lambda d: d.finished):
        if groups and failure.finished - groups[-1][-1].finished <= INCIDENT_GAP:
            groups[-1].append(failure)
        else:
            groups.append([failure])
    return groups


def root_cause(incident: Sequence[RankFailure]) -> RankFailure:
    """The failure of an incident that explains the others."""
    return min(incident, key=lambda d: (d.is_secondary, d.was_told_to_end, d.failed_at))


def is_requested_stop(incident: Sequence[RankFailure]) -> bool:
    """Whether no rank failed by itself: the cluster had requested the end of each."""
    return all(d.stopped and d.reason != "OOMKilled" and not d.was_ended_by_node for d in incident)


def ending_signal(code: int, signal: int = 0) -> int:
    """The signal that ended a program, 0 = none: `signal` if set, else the one that a shell or runtime encodes in the exit code."""
    return signal or (code - 128 if 128 < code < 128 + signals.NSIG else 0)


def exit_description(code: int, signal: int, reason: str = "", message: str = "") -> str:
    """How a program ended, in words: `was killed with SIGKILL (exit code 137)`. `message` says why it could not start."""
    if reason == "OOMKilled":
        return "was killed for using too much memory"
    if reason == "StartError":
        return f"could not start: {message}"
    number = ending_signal(code, signal)
    if number in {s.value for s in signals.Signals}:
        return f"was killed with {signals.Signals(number).name} (exit code {code})"
    return f"ended with exit code {code}"


def incident_sentence(incident: Sequence[RankFailure], ranks: int = 0, left: Sequence[str] = ()) -> str:
    """What happened, as a sentence. `ranks`: their number, 0 = as the failures say; `left`: names of ranks that exited with 0 before."""
    if is_requested_stop(incident):
        names = sorted({d.rank for d in incident})
        plural = "was" if len(names) == 1 else "were"
        return f"No rank failed: {join_names(names)} {plural} told to end ({_STOP_REASONS})."
    cause = root_cause(incident)
    others = {d.rank for d in incident if d.rank != cause.rank}
    secondary = {d.rank for d in incident if _follows(d, cause)} & others
    text = f"{cause.rank_name} (pod {cause.pod}, node {cause.node}) {_cause_description(cause)}"
    if cause.is_secondary and left:
        verb = "had" if len(left) == 1 else "each had"
        return f"{join_names(left, 3)} {verb} ended with exit code 0 while others still needed {'it' if len(left) == 1 else 'them'}: {text}."
    if cause.is_secondary and not _had_all_peers(cause, incident):
        text = f"{text}; no rank logged an error of its own, so the logs do not say why the first one ended"
    if not others:
        return text + "."
    ranks = ranks or max(d.ranks for d in incident)
    count = (
        f"all {len(others)} others" if ranks and len(others) == ranks - 1 and ranks > 2 else join_names(sorted(others))
    )
    stopped = {d.rank for d in incident if d.stopped and (d.trouble is None or d.was_told_to_end)}
    if others == secondary and others <= stopped:
        return f"{text}; {count} {'was' if len(others) == 1 else 'were'} then stopped."
    if others == secondary:
        lost = "it" if not cause.is_secondary else "its peers" if len(others) == 1 else "their peers"
        return f"{text}; {count} then lost {lost} and ended too."
    own_failures = sorted(others - secondary)
    suffix = f", and {join_names(sorted(secondary))} lost a peer" if secondary else ""
    return f"{text}; {join_names(own_failures)} failed {_compare_failures(cause, incident, own_failures)}{suffix}."


def _follows(failure: RankFailure, cause: RankFailure) -> bool:
    """Whether a rank ended because another one had failed. One with the same error has failed the same way."""
    errors = [(each.trouble.kind, each.trouble.text) if each.trouble else None for each in (failure, cause)]
    return failure.is_secondary or (failure.was_told_to_end and not cause.was_told_to_end and errors[0] != errors[1])


def _had_all_peers(cause: RankFailure, incident: Sequence[RankFailure]) -> bool:
    """Whether `cause` cannot have lost a peer, whatever its error says: a refused connection is not one to a peer, and a peer that the
    cluster stopped afterwards was still running."""
    refused = cause.trouble is not None and cause.trouble.kind.endswith("ConnectionRefusedError")
    others = [d for d in incident if d.rank != cause.rank]
    return refused or (
        bool(others) and all(d.stopped and d.trouble is None and d.finished >= cause.finished for d in others)
    )


def _compare_failures(cause: RankFailure, incident: Sequence[RankFailure], others: Sequence[str]) -> str:
    """The end of a sentence: how the other ranks failed, compared with the root cause."""
    is_same = {_failure_signature(cause)} == {_failure_signature(d) for d in incident if d.rank in others}
    return "the same way" if is_same else "too, but later" if len(others) == 1 else "as well, but later"


def _failure_signature(failure: RankFailure) -> tuple[object, ...]:
    error = (failure.trouble.kind, failure.trouble.text) if failure.trouble is not None else (failure.said,)
    return (failure.code, failure.signal, failure.reason, failure.message, *error)


def _cause_description(cause: RankFailure) -> str:
    ending = exit_description(cause.code, cause.signal, cause.reason, cause.message)
    ending += f" ({cause.times} times)" if cause.times > 1 else ""
    if cause.reason == "StartError":
        return ending
    duration = f" after {format_duration(cause.finished - cause.started)}" if cause.finished > cause.started > 0 else ""
    if cause.reason == "OOMKilled":
        return f"{ending}{duration}" + (f": {cause.message}" if cause.message else "")
    if cause.was_ended_by_node:
        how = _EVICTIONS.get(cause.reason, "was stopped by the kubelet")
        return f"{how}{duration}: {cause.reason}: {cause.message}".rstrip(": .")
    if cause.trouble is not None:
        if cause.trouble.text.startswith((SEEN_BY_TORCHRUN, SEEN_BY_MPIRUN)):
            return f"{cause.trouble.kind}{duration}, {cause.trouble.text}"
        return "; ".join(
            filter(
                None,
                [
                    f"{ending}{duration}: {cause.trouble}",
                    cause.shortage,
                    error_hint(cause.trouble.kind, cause.trouble.text),
                ],
            )
        )
    number = cause.signal
    if cause.shortage and not cause.said:
        return f"{ending}{duration}; {cause.shortage}"
    if number == signals.SIGKILL and not cause.stopped:
        return f"{ending}{duration}; not by rowlock, and it logged no error: a `kill -9` by somebody, or the kernel was out of memory"
    if hint := _HINTS.get(signals.Signals(number) if number in {s.value for s in signals.Signals} else signals.SIGCHLD):
        return f"{ending}{duration}; {hint}"
    known_code = EXIT_CODES.get(cause.code, "")
    if cause.said:
        last_line = f"{ending}{duration}; the last line of its log: {cause.said.removesuffix('.')}"
        return "; ".join(filter(None, [last_line, cause.shortage, error_hint(cause.said) or known_code]))
    return f"{ending}{duration} and logged no error" + (f"; {known_code}" if known_code else "")


def join_names(names: Sequence[str], limit: int = 4) -> str:
    """Names for a sentence: `a, b and 3 more`."""
    shown_names = list(names[:limit])
    if len(names) > limit:
        return f"{', '.join(shown_names)} and {len(names) - limit} more"
    return " and ".join([", ".join(shown_names[:-1]), shown_names[-1]] if len(shown_names) > 1 else shown_names)


def format_duration(seconds: float) -> str:
    """A duration for messages: `0.4 s`, `12 s`, `3 min`, `2.5 h`."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
