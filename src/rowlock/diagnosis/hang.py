"""Which rank keeps the others waiting: the verdict on ranks that were observed at least twice, a moment apart.

A distributed step ends for all ranks or for none, so a job whose ranks wait for each other stands still as a whole, and the
question is only which rank is not where the others are. Sentences claim only what was seen: where each rank was, how much it
computed and for how long it has written nothing. When no stack could be read, the verdict says so instead of guessing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from rowlock.diagnosis.observation import BUSY, IDLE, STOPPED, RankObservation, Verdict
from rowlock.diagnosis.rendezvous import MEETINGS, TO_COMPARE, awaited_nodes, have_all_come, rendezvous_fault
from rowlock.diagnosis.root_cause import format_duration, join_names

MIN_SILENCE = 3.0
"""Seconds without output of any rank before a hang is reported: healthy ranks wait for each other in every step."""
_ASLEEP = 20.0
"""The same where all ranks sleep, each by itself: a sleep ends, and a healthy program may pause in every round."""
_MEET, _LAST_CALL, _RETRY = 15.0, 45.0, 100.0
"""Seconds for which ranks that have all come may take to meet: connected to each other; the same where an elastic torchrun waits for more
nodes than it needs (for 30 s by default); and with one that is not connected. Such a rank may sleep until its library tries again: torch's
store for up to 90 s."""
_SENDS, _RECEIVES = {"send", "Send", "send_object_list"}, {"recv", "Recv", "recv_object_list"}
_FROM_ONE = {"broadcast", "broadcast_object_list", "scatter", "scatter_object_list", "bcast", "Bcast"}
"""Calls that send to one rank, that receive from one, and in which all receive from the same one."""


def judge_ranks(observations: Sequence[RankObservation]) -> Verdict:
    """The verdict over all running ranks of a job."""
    remaining = [look for look in observations if not look.has_left]
    verdict = _judge_now(remaining)
    if verdict.is_hang and verdict.kind not in ("failed", "stopped") and len(remaining) < len(observations):
        verdict = Verdict("moving", _moving_sentence(remaining))
    observations = remaining
    parts = (verdict.sentence, _evidence_sentence(verdict, observations), _restart_sentence(observations))
    return replace(verdict, sentence=" ".join(part for part in parts if part))


def _judge_now(observations: Sequence[RankObservation]) -> Verdict:
    failed = [look for look in observations if look.is_failed]
    seen = [look for look in observations if look.stack is not None]
    if any(look.error for look in failed) or (failed and seen and all(look.is_at_rest for look in seen)):
        return _failed_verdict(observations, failed)  # a logged error may be handled: it counts only if all ranks rest
    if stopped := [look for look in observations if look.state == STOPPED]:
        return _stopped_verdict(observations, stopped)
    absent, running = [o for o in observations if o.is_absent], [o for o in observations if not o.is_absent]
    if absent and running:
        return _absent_verdict(absent, running)
    verdict = _judge_stacks(observations)
    needs_silence = verdict.kind in ("behind", "mismatch", "stuck", "still", "slow")
    silent = min(look.silent for look in observations)
    if needs_silence and silent < MIN_SILENCE:
        return Verdict("moving", _moving_sentence(observations))
    if verdict.kind == "still" and silent < _ASLEEP and all(look.sleeps for look in observations):
        which = "both" if len(observations) == 2 else f"all {len(observations)}"
        text = f"Nothing hangs so far: {which} ranks sleep, silent for {format_duration(silent)}, and a sleep ends by itself"
        return Verdict("moving", f"{text}: {_still_text(observations)}.")
    return verdict


def _judge_stacks(observations: Sequence[RankObservation]) -> Verdict:
    """The verdict on ranks that have all begun, none of them stopped or failed."""
    with_stack = [look for look in observations if look.stack is not None]
    if not with_stack:
        no_stack_reason = next((look.blind for look in observations if look.blind), "no rank has a Python process")
        return Verdict("blind", f"The ranks' stacks cannot be read: {no_stack_reason}.")
    waiting = [look for look in with_stack if look.awaited_collective and look.is_standing_still]
    not_waiting = [look for look in with_stack if not look.awaited_collective]
    if waiting and not_waiting:
        return _behind_verdict(waiting, not_waiting)
    is_alone = len(observations) == 1 and not (waiting and waiting[0].awaited_collective in MEETINGS)
    if waiting and len(waiting) == len(with_stack) == len(observations) and not is_alone:
        return _all_waiting_verdict(waiting)
    standing_still = [look for look in with_stack if look.is_standing_still]
    if len(observations) == 1 and standing_still and standing_still[0].is_at_rest:
        only = standing_still[0]
        place = f"{only.rank} is at {_place_of(only)} and uses no CPU{_logged_text(only)}"
        is_left = only.world_size > 1 and only.logged is not None and not only.logged.secondary
        if is_left and (
            not only.sleeps or only.silent >= _ASLEEP
        ):  # another one of its pod has failed, and shared its log
            silent = f"silent for {format_duration(only.silent)}"
            return Verdict("still", f"No rank moves, {silent}: {place}; of {only.world_size} ranks no other one runs.")
        return Verdict("moving", f"{place}; it waits for no other rank.")
    if len(standing_still) == len(observations) > 1 and all(look.is_at_rest for look in standing_still):
        return _still_verdict(standing_still)
    return Verdict("moving", _moving_sentence(observations))


def _evidence_sentence(verdict: Verdict, observations: Sequence[RankObservation]) -> str:
    """On how many observations a hang verdict is based, as a sentence; "" when unknown or not needed."""
    seen = [look for look in observations if look.looks]
    if not seen or verdict.kind not in ("behind", "ended", "mismatch", "stuck", "still"):
        return ""
    looks, watched = min(look.looks for look in seen), min(look.watched for look in seen)
    return (
        f"Seen in {looks} looks over {format_duration(watched)}: no stack changed, no line was written, no data moved."
    )


def _absent_verdict(absent: Sequence[RankObservation], running: Sequence[RankObservation]) -> Verdict:
    """The verdict when some ranks have not begun, or have ended with exit code 0: whether the others wait for them."""
    not_begun = [look for look in absent if look.program]
    what = join_names([_absence_text(look) for look in absent], 3)
    waiting = [look for look in running if look.is_at_rest]
    if len(waiting) < len(running) or min(look.silent for look in running) < MIN_SILENCE:
        return Verdict("moving", f"{_moving_sentence(running)} {what}." if not_begun else _moving_sentence(running))
    names = tuple(look.rank for look in not_begun or absent)
    who = _count_text(waiting, running) if len(waiting) == 1 else f"{len(waiting)} ranks"
    verb = "waits" if len(waiting) == 1 else "wait"
    silent = format_duration(min(look.silent for look in waiting))
    where = f"{who} {verb} in {_common_wait(waiting)}" if waiting[0].awaited_collective else _still_text(waiting)
    if not not_begun and not any(look.awaited_collective for look in waiting):
        names = ()  # no collective was seen, so they may wait for something else
    return Verdict("absent" if not_begun else "ended", f"{what}; {where}, silent for {silent}.", names)


def _absence_text(look: RankObservation) -> str:
    where = f"{look.rank} (pod {look.pod}, node {look.node})"
    if look.has_ended:
        return f"{where} has ended with exit code 0"
    return f"{where} has not begun: its pod runs `{look.program}`, no Python yet"


def _still_text(looks: Sequence[RankObservation]) -> str:
    verbs = ["polls" if _polls_itself(look) else "sleeps" if look.sleeps else "is" for look in looks]
    texts = [f"{o.rank} {verb} at {_place_of(o)}{_logged_text(o)}" for o, verb in zip(looks, verbs, strict=True)]
    return join_names(texts, 4)


def _polls_itself(look: RankObservation) -> bool:
    """Whether its main thread polls, as opposed to a library's thread."""
    return look.polls and not look.main_is_asleep


def _still_verdict(looks: Sequence[RankObservation]) -> Verdict:
    """The verdict when no rank moves and no call is a known collective. It names the ranks that are outside the library where the others
    meet, else those that sleep, else those at a different place."""
    places = Counter(_place_of(look) for look in looks)
    (common, count), *_ = places.most_common(1)
    sleeping = [look for look in looks if look.sleeps] or [look for look in looks if not _polls_itself(look)]
    elsewhere = [look for look in looks if _place_of(look) != common]
    apart = [look for look in looks if look.stack is not None and not look.stack.is_in_group_call]
    if 0 < len(apart) < len(looks):  # the others are in a library where ranks meet, though in no known collective
        culprits = apart
    elif 0 < len(sleeping) < len(looks):
        culprits = sleeping
    else:
        culprits = elsewhere if 0 < len(elsewhere) and count > len(looks) / 2 else []
    silent = format_duration(min(look.silent for look in looks))
    text = f"No rank moves, silent for {silent}: {_still_text([*culprits, *(o for o in looks if o not in culprits)])}"
    if culprits:
        names = join_names([look.rank for look in culprits])
        text += f"; {names} {'keeps' if len(culprits) == 1 else 'keep'} the others waiting"
    return Verdict("still", f"{text}.", tuple(look.rank for look in culprits))


def judge_after(observations: Sequence[RankObservation], seconds: float) -> Verdict:
    """The verdict on the same observations `seconds` later, given that no rank has moved or written since."""
    later = (replace(o, silent=o.silent + seconds, together=o.together + seconds) for o in observations)
    return judge_ranks(list(later))


def keeps_standing(held: Sequence[RankObservation], seconds: float, observations: Sequence[RankObservation]) -> bool:
    """Whether ranks that were found hanging `seconds` ago still hang, even if one that polls in a loop is at another line now.
    A rank that has written a line, moved data or computed since then does not hang."""
    is_same = {(look.rank, look.pid) for look in held} == {(look.rank, look.pid) for look in observations}
    return is_same and all(
        (look.is_idle or look.polls)
        and not (look.is_at_work or look.has_left)
        and (look.is_absent or look.silent > seconds)
        for look in observations
    )


def _restart_sentence(observations: Sequence[RankObservation]) -> str:
    """A sentence about torchrun's restarts and the error before the last one; "" when there were none."""
    count = max((look.restarts for look in observations), default=0)
    if not count:
        return ""
    text = f"torchrun has started its ranks again {'once' if count == 1 else f'{count} times'}"
    known = [(look.earlier_error, look.pod) for look in observations if look.earlier_error and look.restarts == count]
    if not known:
        return (
            f"{text}; what failed left no error file (programs under torch's `@record` write one), so its log may tell."
        )
    error, pod = min(known, key=lambda each: (each[0].secondary, each[0].at))
    local_rank = "a rank" if error.rank is None else f"local rank {error.rank}"
    return f"{text}{', the last time' if count > 1 else ''} after {local_rank} of pod {pod} had failed: {error}."


def _failed_verdict(observations: Sequence[RankObservation], failed: Sequence[RankObservation]) -> Verdict:
    """The verdict when ranks have failed without ending: the first failure is the cause."""
    first = min(failed, key=lambda look: (look.own_error.at if look.own_error else 0.0) or float("inf"))
    text = f"{first.rank} (pod {first.pod}, node {first.node}) has failed and does not end: {first.own_error}"
    if first.stack is not None:
        text += f"; it is at {_place_of(first)}, {_activity_text(first)}"
    others = [look for look in observations if look is not first]
    if waiting := [look for look in others if look.awaited_collective and not look.moved and not look.is_failed]:
        text += (
            f"; {_count_text(waiting, others)} {'waits' if len(waiting) == 1 else 'wait'} in {_common_wait(waiting)}"
        )
    return Verdict("failed", f"{text}.", (first.rank,))


def _stopped_verdict(observations: Sequence[RankObservation], stopped: Sequence[RankObservation]) -> Verdict:
    first = stopped[0]
    names = join_names([look.rank for look in stopped])
    location = f" (pod {first.pod}, node {first.node}, pid {first.pid})" if len(stopped) == 1 else ""
    text = f"{names} {'is' if len(stopped) == 1 else 'are'} stopped by a signal (SIGSTOP or a debugger){location}"
    if first.stack is not None and len(stopped) == 1:
        text += f" at {_place_of(first)}"
    others = [look for look in observations if look.state != STOPPED]
    if waiting := [look for look in others if look.awaited_collective]:
        text += f"; {_count_text(waiting, others)} {'waits' if len(waiting) == 1 else 'wait'} for it in {_common_wait(waiting)}"
    return Verdict(
        "stopped", f"{text}. `{first.reach}kill -CONT {first.pid}` continues it.", tuple(look.rank for look in stopped)
    )


def _behind_verdict(waiting: Sequence[RankObservation], not_waiting: Sequence[RankObservation]) -> Verdict:
    straggler = not_waiting[0] if len(not_waiting) == 1 else None
    kind = "behind" if all(look.is_at_rest for look in not_waiting) else "slow"
    waiting_text = (
        f"{_count_text(waiting, waiting)} {'waits' if len(waiting) == 1 else 'wait'} in {_common_wait(waiting)}"
    )
    if straggler is None:
        places = join_names([f"{look.rank} at {_place_of(look)}" for look in not_waiting], 3)
        return Verdict(kind, f"{waiting_text}; not there yet: {places}.", tuple(look.rank for look in not_waiting))
    activity = _activity_text(straggler)
    text = f"{straggler.rank} (pod {straggler.pod}, node {straggler.node}) keeps the others waiting: it is at {_place_of(straggler)}, {activity}; {waiting_text}"
    return Verdict(kind, f"{text}.", (straggler.rank,))


def _all_waiting_verdict(waiting: Sequence[RankObservation]) -> Verdict:
    """The verdict when all ranks wait: for each other."""
    calls = Counter(look.awaited_collective for look in waiting)
    if len(calls) > 1:
        (common_call, _), *_ = calls.most_common(1)
        outliers = [look for look in waiting if look.awaited_collective != common_call]
        places = join_names([f"{look.rank} in {look.awaited_collective} at {_place_of(look)}" for look in outliers], 3)
        others = [look for look in waiting if look.awaited_collective == common_call]
        who = "the others" if len(others) > 1 else others[0].rank
        text = f"The ranks wait in different collectives: {places}, {who} in {common_call} at {_place_of(others[0])}"
        return Verdict(
            "mismatch",
            f"{text}; every rank must call the same ones in the same order.",
            tuple(o.rank for o in outliers),
        )
    if all(look.cpu > BUSY for look in waiting) or (
        next(iter(calls)) == "backward" and any(w.cpu > IDLE for w in waiting)
    ):
        return Verdict("moving", f"All ranks are in {next(iter(calls))} and compute.")
    silent = min(look.silent for look in waiting)
    if next(iter(calls)) in MEETINGS:
        return _meeting_verdict(waiting, silent)
    text = (
        f"All {len(waiting)} ranks wait in {_common_wait(waiting)} and none moves, silent for {format_duration(silent)}"
    )
    return Verdict("stuck", f"{text}: {_reason_of_wait(waiting)}.")


def _reason_of_wait(waiting: Sequence[RankObservation]) -> str:
    """Why ranks that are all in the same call may wait for ever, as a clause."""
    call = waiting[0].awaited_collective
    if call in _SENDS:
        return "none of them receives, and of two ranks that exchange messages one must receive first"
    if call in _RECEIVES:
        return "none of them sends"
    if len({_place_of(look) for look in waiting}) > 1:
        places = join_names([f"{look.rank} at {_place_of(look)}" for look in waiting], 3)
        return f"they are not at the same place ({places}), and every rank must call the same collectives in the same order"
    root = ", or do not agree on whose data it is" if call in _FROM_ONE else ""
    return f"a message between them was lost, or they sent different sizes{root}"


def _meeting_verdict(waiting: Sequence[RankObservation], silent: float) -> Verdict:
    """The verdict when all ranks are still in the rendezvous: no message can have been lost yet."""
    told = {look.world_size for look in waiting}
    expected = told.pop() if len(told) == 1 else 0
    ranks = [(look.rank, look.pod, look.rendezvous) for look in waiting]
    far = join_names([look.rank for look in waiting if not look.is_connected], 3)
    more = awaited_nodes(ranks)
    limit = _RETRY if far else _LAST_CALL if more else _MEET
    if (come := have_all_come(ranks, expected, far=bool(far))) and (
        since := min(look.together for look in waiting)
    ) < limit:
        if more and (len(waiting) == 1 or not far):
            return Verdict("moving", f"Nothing hangs so far: {more}.")
        return Verdict("moving", _about_to_meet_sentence(waiting, since, far))
    reason, culprits = rendezvous_fault(ranks, expected, far=bool(far))
    text = f"The rendezvous is not complete: {reason}"
    if come and far:
        text += f", and {_unconnected_text(far)}"
    call = waiting[0].awaited_collective
    variables = TO_COMPARE.get(call, "WORLD_SIZE, RANK, MASTER_ADDR and MASTER_PORT as the program uses them")
    advice = "" if waiting[0].rendezvous and waiting[0].rendezvous.nodes else f"; compare {variables}"
    if len(waiting) == 1 and advice and call not in TO_COMPARE:
        advice += "; a program does not start its own local ranks (Lightning's `devices=2`) where LOCAL_RANK is set"
    where = f"{'it is' if len(waiting) == 1 else 'they are'} in {_common_wait(waiting)}, silent for {format_duration(silent)}"
    return Verdict("stuck", f"{text}; {where}{advice}.", tuple(culprits))


def _about_to_meet_sentence(waiting: Sequence[RankObservation], since: float, far: str) -> str:
    """`far`: the ranks without a connection to another one."""
    text = f"Nothing hangs: all {len(waiting)} ranks have been in {_common_wait(waiting)} for {format_duration(since)}"
    if not far:
        return f"{text}, and find each other."
    return f"{text}; {_unconnected_text(far)} yet, for a library tries again after pauses of up to 90 s."


def _unconnected_text(names: str) -> str:
    return f"{names} {'have' if ' and ' in names else 'has'} no connection to another rank"


def _moving_sentence(observations: Sequence[RankObservation]) -> str:
    busy = sum(look.cpu for look in observations)
    places = Counter(look.stack.place for look in observations if look.stack is not None)
    place_text = f", most at {places.most_common(1)[0][0]}" if places else ""
    return f"Nothing hangs: {len(observations)} rank{'s' if len(observations) > 1 else ''}, {busy:.1f} CPUs in use{place_text}."


def _activity_text(look: RankObservation) -> str:
    share = f"{look.cpu * 100:.0f}% of a CPU"
    activity = "computing" if look.cpu > BUSY else "asleep or waiting for something else" if look.is_idle else "at work"
    if look.is_starved and look.queued > look.cpu:
        activity = "at work, but kept from the CPUs by other programs"
    return f"{activity} ({share}), silent for {format_duration(look.silent)}{_logged_text(look)}"


def _logged_text(look: RankObservation) -> str:
    """A clause about the error at the end of its log, which may be why it does not arrive; "" without one."""
    is_over = look.stack is not None and look.stack.is_over
    if look.logged is None or (look.logged.secondary and not is_over) or look.is_failed:
        return ""
    return f", after its log had ended with {look.logged}"


def _place_of(look: RankObservation) -> str:
    if look.stack is None:
        return "an unknown place"
    if look.stack.worker is not None:  # the main thread waits for another thread, whose place tells more
        where = _place_of(replace(look, stack=look.stack.worker))
        main = _place_of(replace(look, stack=replace(look.stack, worker=None)))
        return where if look.awaited_collective else f"{main}, its thread at {where}"
    library_call = look.stack.library_call
    if (
        not library_call or look.awaited_collective or library_call == look.stack.place
    ):  # both are the same when there is no frame of the user's code
        return look.stack.place
    return f"{look.stack.place} in {library_call}"


def _common_wait(waiting: Sequence[RankObservation]) -> str:
    """The call in which most of these ranks wait, and its place."""
    (collective, place), _ = Counter((look.awaited_collective, _place_of(look)) for look in waiting).most_common(1)[0]
    call = "the backward pass (where gradients are averaged)" if collective == "backward" else collective
    return f"{call} at {place}"


def _count_text(subset: Sequence[RankObservation], everyone: Sequence[RankObservation]) -> str:
    if len(subset) == 1:
        return subset[0].rank
    return f"{len(subset)} ranks" if len(subset) < len(everyone) or len(subset) > 2 else "both other ranks"
