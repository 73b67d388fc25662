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
    any_alive,
    cut_short,
    emulated,
    has_started,
    init_containers,
    initialised,
    is_ready,
    main_containers,
    sidecar,
    sidecars,
)
from rowlock.cluster.node.pod_sync import delay, level_after, restarts
from rowlock.objects import Object, condition, dig, meta, namespace, phase, timestamp, uid
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
    cut = cut_short(pod, facts, now)
    now_phase = "Failed" if cut else dict(PHASES)[situation(pod, facts)]
    if phase(pod) in ENDED:
        now_phase = phase(pod)  # for ever; how its containers end is still told
        cut = cut or _said(pod)
    elif now_phase in ENDED and not cut and any_alive(facts, sidecars(pod)):
        now_phase = "Running" if initialised(pod, facts) else "Pending"  # over when its sidecars are
    mains = [container_status(pod, c, facts, now_base=(now, base)) for c in main_containers(pod)]
    inits = [container_status(pod, c, facts, now_base=(now, base), init=True) for c in init_containers(pod)]
    found: dict[str, Any] = {"phase": now_phase, "conditions": _conditions(pod, facts, now_phase, now)}
    if cut:
        found["reason"], found["message"] = cut
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


def _said(pod: Object) -> tuple[str, str] | None:
    """Reason and message that an ended pod has already."""
    reason = dig(pod, "status.reason")
    return (str(reason), str(dig(pod, "status.message", ""))) if reason else None


def situation(pod: Object, facts: PodFacts) -> str:
    """Which line of PHASES describes the pod."""
    for container in _unfinished(pod, facts):
        ended = None if sidecar(container) else _ended(container, facts)
        failed = ended is not None and not restarts(pod, container, ended, facts)
        return "init failed" if failed else "initialising"
    known = [facts.of(c) for c in main_containers(pod)]
    if any(k.run is None or (k.run.started is None and k.run.exit is None and k.run.number == 0) for k in known):
        return "some never ran"
    ends = [k.run.exit for k in known if k.run is not None and k.run.exit is not None]
    again = (
        restarts(pod, c, k.run.exit, facts)
        for c, k in zip(main_containers(pod), known, strict=True)
        if k.run and k.run.exit
    )
    if len(ends) < len(known) or any(again):
        return "some run or will run again"
    return "all succeeded" if all(end.code == 0 for end in ends) else "all ended"


def _unfinished(pod: Object, facts: PodFacts) -> list[dict[str, Any]]:
    """The init containers that the main ones still wait for."""
    if initialised(pod, facts):
        return []
    return [c for c in init_containers(pod) if not _through(c, facts)]


def _through(container: Mapping[str, Any], facts: PodFacts) -> bool:
    if sidecar(container):
        return has_started(container, facts.of(container))
    end = _ended(container, facts)
    return end is not None and end.code == 0


def _ended(container: Mapping[str, Any], facts: PodFacts) -> Exit | None:
    """How an init container ended; the emulated one ends well when the master is ready."""
    if emulated(container):
        return None if facts.master_ready is None else Exit(0, facts.begun, facts.master_ready)
    run = facts.of(container).run
    return None if run is None else run.exit


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
    plain_init = init and not sidecar(container)
    number = known.run.number if known.run else 0
    terminated_well = state.get("terminated", {}).get("exitCode") == 0
    found: dict[str, Any] = {
        "image": container.get("image", ""),
        "imageID": (known.image_id or _image_id(pod, container)) if known.run or terminated_well else "",
        "lastState": last,
        "name": container["name"],
        "ready": terminated_well if plain_init else is_ready(container, known),
        "resources": container.get("resources") or {},
        "restartCount": number,
        "started": "running" in state if plain_init else has_started(container, known),
        "state": state,
    }
    if known.run:
        found["containerID"] = known.run.container or container_id(pod, container["name"], number)
    return found


def _image_id(pod: Object, container: Mapping[str, Any]) -> str:
    """What the pod's status says already: after a restart of the server nothing else knows."""
    every = [*dig(pod, "status.initContainerStatuses", ()), *dig(pod, "status.containerStatuses", ())]
    return next((str(c.get("imageID") or "") for c in every if c.get("name") == container["name"]), "")


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
        return {"waiting": _waiting(pod, known, facts, init=init)}, ended
    wait = delay(level_after(known), now_base[1])
    if restarts(pod, container, run.exit, facts) and wait > 0 and not _over(pod, facts, now_base[0]):
        return {"waiting": {"reason": "CrashLoopBackOff", "message": _back_off(pod, name, wait)}}, ended
    return ended, last


def _over(pod: Object, facts: PodFacts, now: float) -> bool:
    """Nothing of the pod will run again, whatever its policy."""
    return phase(pod) in ENDED or cut_short(pod, facts, now) is not None


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
    message = {}
    if known.problem is not None:
        message = {"message": known.problem.message}
        if known.problem.reason != "FailedMount":
            return {"reason": known.problem.reason, **message}
    initialising = init or situation(pod, facts) in ("initialising", "init failed")
    return {"reason": "PodInitializing" if initialising or init_containers(pod) else "ContainerCreating", **message}


def _terminated(pod: Object, container: str, ended: Exit, number: int) -> dict[str, Any]:
    where = ended.container or container_id(pod, container, number)
    found: dict[str, Any] = {"containerID": where, "exitCode": ended.code}
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
    unready = [c["name"] for c in (*sidecars(pod), *main_containers(pod)) if not is_ready(c, facts.of(c))]
    waiting = [c["name"] for c in _unfinished(pod, facts)]
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
