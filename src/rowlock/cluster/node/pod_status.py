"""A pod's status as a real kubelet writes it, from facts: pure. The tables at the top are the rules.

`status(pod, facts, now, base)` is the whole `status` that the kubelet owns; what others own (`qosClass`, the scheduler's
condition) is kept. Container states: waiting → running → terminated → (waiting CrashLoopBackOff →) running …
"""

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

from rowlock.cluster.node.pod_facts import (
    ContainerFacts,
    Exit,
    PodFacts,
    emulated,
    init_containers,
    main_containers,
)
from rowlock.cluster.node.pod_sync import delay, level_after, restarts
from rowlock.objects import Object, condition, dig, meta, namespace, timestamp, uid
from rowlock.objects import name as name_of

Conditions = Sequence[tuple[str, str, str, str]]

ENDED = {"Succeeded": "PodCompleted", "Failed": "PodFailed"}
"""Phase → the reason why such a pod is not ready."""

PHASES: tuple[tuple[str, str], ...] = (
    ("init failed", "Failed"),
    ("initialising", "Pending"),
    ("some never ran", "Pending"),
    ("some run or will run again", "Running"),
    ("all succeeded", "Succeeded"),
    ("all ended", "Failed"),
)
"""The first line that holds is the pod's phase."""


def status(pod: Object, facts: PodFacts, now: float, base: float = 10.0) -> dict[str, Any]:
    """What the kubelet says about the pod."""
    overdue = _overdue(pod, facts, now)
    now_phase = "Failed" if overdue else dict(PHASES)[situation(pod, facts)]
    mains = [container_status(pod, c, facts, now_base=(now, base)) for c in main_containers(pod)]
    inits = [container_status(pod, c, facts, now_base=(now, base), init=True) for c in init_containers(pod)]
    found: dict[str, Any] = {"phase": now_phase, "conditions": _conditions(pod, facts, now_phase, now)}
    if overdue:
        found["reason"] = "DeadlineExceeded"
        found["message"] = "Pod was active on the node longer than the specified deadline"
    found |= {"hostIP": facts.host_ip, "hostIPs": [{"ip": facts.host_ip}]}
    if facts.ip:
        found |= {"podIP": facts.ip, "podIPs": [{"ip": facts.ip}]}
    found["startTime"] = dig(pod, "status.startTime") or timestamp(facts.begun)
    if inits:
        found["initContainerStatuses"] = inits
    found["containerStatuses"] = mains
    if generation := meta(pod).get("generation"):
        found["observedGeneration"] = generation
    return found


def situation(pod: Object, facts: PodFacts) -> str:
    """Which line of PHASES describes the pod."""
    for container in init_containers(pod):
        ended = _ended(container, facts)
        if ended is None or ended.code != 0:
            failed = ended is not None and not restarts(pod, ended, init=True)
            return "init failed" if failed else "initialising"
    known = [facts.of(c) for c in main_containers(pod)]
    if any(k.run is None or (k.run.started is None and k.run.exit is None and k.run.number == 0) for k in known):
        return "some never ran"
    ends = [k.run.exit for k in known if k.run is not None and k.run.exit is not None]
    if len(ends) < len(known) or any(restarts(pod, end) for end in ends):
        return "some run or will run again"
    return "all succeeded" if all(end.code == 0 for end in ends) else "all ended"


def _ended(container: Mapping[str, Any], facts: PodFacts) -> Exit | None:
    """How an init container ended; the emulated one ends well when the master is ready."""
    if emulated(container):
        return None if facts.master_ready is None else Exit(0, facts.begun, facts.master_ready)
    run = facts.of(container).run
    return None if run is None else run.exit


def _overdue(pod: Object, facts: PodFacts, now: float) -> bool:
    limit = dig(pod, "spec.activeDeadlineSeconds")
    return limit is not None and now >= facts.begun + float(limit)


def container_status(
    pod: Object,
    container: Mapping[str, Any],
    facts: PodFacts,
    *,
    now_base: tuple[float, float] = (0.0, 10.0),
    init: bool = False,
) -> dict[str, Any]:
    """One entry of containerStatuses or initContainerStatuses."""
    known = facts.of(container)
    if init and emulated(container):
        known = ContainerFacts(image_id="rowlock://waits-for-the-master")
        state, last = _emulated_state(facts), dict[str, Any]()
    else:
        state, last = _states(pod, container, facts, now_base, init=init)
    running = "running" in state
    number = known.run.number if known.run else 0
    terminated_well = state.get("terminated", {}).get("exitCode") == 0
    found: dict[str, Any] = {
        "image": container.get("image", ""),
        "imageID": known.image_id if known.run or terminated_well else "",
        "lastState": last,
        "name": container["name"],
        "ready": terminated_well if init else running,
        "resources": container.get("resources") or {},
        "restartCount": number,
        "started": running,
        "state": state,
    }
    if known.run:
        found["containerID"] = container_id(pod, container["name"], number)
    return found


def container_id(pod: Object, container: str, number: int) -> str:
    """As a container runtime has it: opaque, and another one for every start."""
    return "process://" + hashlib.sha256(f"{uid(pod)}/{container}/{number}".encode()).hexdigest()


def _emulated_state(facts: PodFacts) -> dict[str, Any]:
    if facts.master_ready is None:
        return {"running": {"startedAt": timestamp(facts.begun)}}
    times = {"startedAt": timestamp(facts.begun), "finishedAt": timestamp(facts.master_ready)}
    return {"terminated": {"exitCode": 0, "reason": "Completed", **times}}


def _states(
    pod: Object, container: Mapping[str, Any], facts: PodFacts, now_base: tuple[float, float], *, init: bool
) -> tuple[dict[str, Any], dict[str, Any]]:
    """(state, lastState)."""
    known, name = facts.of(container), container["name"]
    run = known.run
    last = (
        {} if known.last is None or run is None else {"terminated": _terminated(pod, name, known.last, run.number - 1)}
    )
    if run is None or (run.started is None and run.exit is None):
        return {"waiting": _waiting(pod, known, facts, init=init)}, last
    if run.exit is None:
        return {"running": {"startedAt": timestamp(run.started or 0.0)}}, last
    ended = {"terminated": _terminated(pod, name, run.exit, run.number)}
    if known.problem is not None:
        return {"waiting": {"reason": known.problem.reason, "message": known.problem.message}}, ended
    wait = delay(level_after(known), now_base[1])
    if restarts(pod, run.exit, init=init) and wait > 0 and not _overdue(pod, facts, now_base[0]):
        return {"waiting": {"reason": "CrashLoopBackOff", "message": _back_off(pod, name, wait)}}, ended
    return ended, last


def _back_off(pod: Object, container: str, wait: float) -> str:
    where = f"{name_of(pod)}_{namespace(pod)}({uid(pod)})"
    return f"back-off {duration(wait)} restarting failed container={container} pod={where}"


def duration(span: float) -> str:
    """Go's way: 10s, 2m40s, 5m0s, 100ms."""
    if span < 1:
        return f"{round(span * 1000)}ms"
    minutes, rest = divmod(round(span), 60)
    return f"{minutes}m{rest}s" if minutes else f"{rest}s"


def _waiting(pod: Object, known: ContainerFacts, facts: PodFacts, *, init: bool) -> dict[str, str]:
    if known.problem is not None:
        return {"reason": known.problem.reason, "message": known.problem.message}
    initialising = init or situation(pod, facts) in ("initialising", "init failed")
    return {"reason": "PodInitializing" if initialising or init_containers(pod) else "ContainerCreating"}


def _terminated(pod: Object, container: str, ended: Exit, number: int) -> dict[str, Any]:
    found: dict[str, Any] = {"containerID": container_id(pod, container, number), "exitCode": ended.code}
    found |= {"finishedAt": timestamp(ended.finished), "reason": ended.word, "startedAt": timestamp(ended.started)}
    if ended.message:
        found["message"] = ended.message
    return found


def _conditions(pod: Object, facts: PodFacts, now_phase: str, now: float) -> list[dict[str, Any]]:
    """Those of others stay, before ours: why the scheduler takes the pod back, readiness gates."""
    wanted = [*_own_conditions(pod, facts, now_phase), ("PodScheduled", "True", "", "")]
    ours = {kind for kind, *_ in wanted}
    others = [c for c in dig(pod, "status.conditions", ()) if c.get("type") not in ours]
    return [*others, *(_condition(pod, row, now) for row in wanted)]


def _own_conditions(pod: Object, facts: PodFacts, now_phase: str) -> Conditions:
    unready = [c["name"] for c in main_containers(pod) if not _running(facts.of(c))]
    waiting = [c["name"] for c in init_containers(pod) if (end := _ended(c, facts)) is None or end.code != 0]
    initialized = ("Initialized", "True", "PodCompleted" if now_phase == "Succeeded" else "", "")
    if waiting:
        text = f"containers with incomplete status: [{' '.join(waiting)}]"
        initialized = ("Initialized", "False", "ContainersNotInitialized", text)
    ready, reason, text = "True", "", ""
    if now_phase in ENDED:
        ready, reason = "False", ENDED[now_phase]
    elif unready:
        ready, reason, text = "False", "ContainersNotReady", f"containers with unready status: [{' '.join(unready)}]"
    sandbox = "False" if now_phase in ENDED or not facts.ip else "True"
    return (
        ("PodReadyToStartContainers", sandbox, "", ""),
        initialized,
        ("Ready", ready, reason, text),
        ("ContainersReady", ready, reason, text),
    )


def _running(known: ContainerFacts) -> bool:
    return known.run is not None and known.run.running


def _condition(pod: Object, row: tuple[str, str, str, str], now: float) -> dict[str, Any]:
    """The new condition; its time moves only when its status does."""
    kind, value, reason, message = row
    old = condition(pod, kind) or {}
    since = old.get("lastTransitionTime") if old.get("status") == value else None
    found: dict[str, Any] = {"type": kind, "status": value, "lastProbeTime": None}
    found["lastTransitionTime"] = since or timestamp(now)
    found |= {k: v for k, v in (("reason", reason), ("message", message)) if v}
    if generation := meta(pod).get("generation"):
        found["observedGeneration"] = generation
    return found


def ready(pod: Object, facts: PodFacts) -> bool:
    """All main containers run."""
    return situation(pod, facts) == "some run or will run again" and all(
        _running(facts.of(c)) for c in main_containers(pod)
    )
