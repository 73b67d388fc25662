"""The pods that have names in the network, those that have not ended, and the services that select them.

Updated by the keys that have changed, so that a new pod costs the work for itself and not for all pods and
services that exist. The state is read from the view each time; a key that is noted once too often costs a look.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from rowlock import kinds
from rowlock.api import ObservedView
from rowlock.kinds import Kind
from rowlock.objects import FINAL_PHASES, Key, Object, dig, key, labels, namespace, phase

_Pair = tuple[str, str, str]
"""Namespace, and a label with its value."""
SLICE = 100
"""Objects that are read before yielding to the event loop."""


@dataclass(slots=True)
class NameIndex:
    """An index that is filled with everything in the view at the first `update`."""

    pods: dict[Key, Object] = field(default_factory=dict)
    """The pods that have not ended."""
    _selectors: dict[_Pair, dict[Key, Object]] = field(default_factory=dict)
    """Services by one pair of their selector: the one under which the fewest others are."""
    _pair_of_service: dict[Key, _Pair] = field(default_factory=dict)
    _changed: dict[tuple[Kind, Key], None] = field(default_factory=dict)
    _has_begun: bool = False

    def note_change(self, kind: Kind, changed: Key) -> None:
        """Notes that a pod or a service was added, changed or deleted."""
        if self._has_begun:
            self._changed[kind, changed] = None

    def update(self, view: ObservedView) -> Iterator[None]:
        """Applies the noted changes; yields after each slice."""
        if not self._has_begun:
            self._has_begun = True
            self.pods = {key(pod): pod for pod in view.all_unfinished(kinds.POD)}
            yield
            for number, service in enumerate(view.all(kinds.SERVICE), 1):
                self._put_service(key(service), service)
                if number % SLICE == 0:
                    yield
        looked = 0
        while self._changed:
            kind, changed = next(iter(self._changed))
            del self._changed[kind, changed]
            obj = view.get(kind, *changed)
            if kind is kinds.POD:
                self._put_pod(changed, obj)
            else:
                self._put_service(changed, obj)
            looked += 1
            if looked % SLICE == 0:
                yield

    def services_of(self, pod: Object) -> Iterator[Key]:
        """The services whose selector matches the pod."""
        pod_labels, pod_namespace = labels(pod), namespace(pod)
        for label, value in pod_labels.items():
            for service_key, selector in self._selectors.get((pod_namespace, label, value), {}).items():
                if selector.items() <= pod_labels.items():
                    yield service_key

    def _put_pod(self, pod_key: Key, pod: Object | None) -> None:
        if pod is None or phase(pod) in FINAL_PHASES:
            self.pods.pop(pod_key, None)
        else:
            self.pods[pod_key] = pod

    def _put_service(self, service_key: Key, service: Object | None) -> None:
        if pair := self._pair_of_service.pop(service_key, None):
            found = self._selectors[pair]
            del found[service_key]
            if not found:
                del self._selectors[pair]
        selector = dig(service, "spec.selector") or {} if service else {}
        pairs: Iterable[_Pair] = [(service_key.namespace, label, value) for label, value in selector.items()]
        if service and pairs:
            pair = min(pairs, key=lambda p: len(self._selectors.get(p, ())))
            self._selectors.setdefault(pair, {})[service_key] = selector
            self._pair_of_service[service_key] = pair
