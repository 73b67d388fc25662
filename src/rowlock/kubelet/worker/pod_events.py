"""Events of pods, as a kubelet writes them."""

from collections.abc import Callable

from rowlock.api import Record
from rowlock.kubelet.pod.facts import ephemeral_containers, init_containers
from rowlock.objects import Object


class PodEventRecorder:
    """Hands events of pods on to `record`."""

    def __init__(self, record: Callable[[Record], None]) -> None:
        self._record = record

    def record_event(self, pod: Object, kind: str, reason: str, message: str, container: str) -> None:
        """`kind` is Normal or Warning; `container` is the name of the container concerned, "" = the pod itself."""
        record = Record(pod, kind, reason, message, "kubelet", _field_path(pod, container))  # type: ignore[arg-type] # Normal, Warning
        self._record(record)


def _field_path(pod: Object, container: str) -> str:
    """The container's field path in the pod, as Kubernetes writes it in events; "" = the pod itself."""
    if not container:
        return ""
    fields = {"initContainers": init_containers(pod), "ephemeralContainers": ephemeral_containers(pod)}
    field = next((f for f, listed in fields.items() if container in [c["name"] for c in listed]), "containers")
    return f"spec.{field}{{{container}}}"
