"""How the pods behind a Service are told to those who list or watch them, when there are many."""

from __future__ import annotations

import random
from typing import Any

import pytest

from rowlock.objects import Object
from rowlock.system.endpoint_slices import endpoint_slices, endpoints

SERVICE: Object = {
    "metadata": {"name": "s", "namespace": "n", "uid": "u", "creationTimestamp": "2026-11-29T00:00:00Z"},
    "spec": {"selector": {"a": "b"}, "ports": [{"port": 80, "targetPort": "web"}]},
}


def pods(count: int, *, not_ready: int = 0) -> list[Object]:
    """The later ones were created later; the first `not_ready` of them are not ready."""
    return [
        {
            "metadata": {
                "name": f"p-{count - number}",
                "namespace": "n",
                "uid": f"u{number}",
                "creationTimestamp": f"2026-11-29T00:{number // 60:02}:{number % 60:02}Z",
            },
            "spec": {"nodeName": "m", "containers": [{"ports": [{"name": "web", "containerPort": 8080}]}]},
            "status": {
                "podIP": f"10.0.{number >> 8}.{number & 255}",
                "conditions": [{"type": "Ready", "status": "False" if number < not_ready else "True"}],
            },
        }
        for number in range(count)
    ]


def addresses(one: Object) -> list[str]:
    return [address for point in one["endpoints"] for address in point["addresses"]]


@pytest.mark.parametrize(("count", "sizes"), [(0, [0]), (1, [1]), (100, [100]), (101, [100, 1]), (250, [100, 100, 50])])
def test_a_slice_holds_a_hundred_pods(count: int, sizes: list[int]) -> None:
    behind = pods(count)
    shuffled = random.Random(1).sample(behind, count)
    slices = list(endpoint_slices(SERVICE, shuffled))
    assert [len(one["endpoints"]) for one in slices] == sizes
    found = [address for one in slices for address in addresses(one)]
    assert sorted(found) == sorted(pod["status"]["podIP"] for pod in behind)
    for field in ("name", "uid"):
        assert len({one["metadata"][field] for one in slices}) == len(slices)
    for one in slices:
        assert one["metadata"]["labels"]["kubernetes.io/service-name"] == "s"
        assert one["ports"] == ([{"name": "", "port": 8080, "protocol": "TCP"}] if count else None)


def test_a_pod_more_changes_the_last_slice_alone() -> None:
    behind = pods(251)
    before, after = (list(endpoint_slices(SERVICE, some)) for some in (behind[:250], behind))
    assert before[:2] == after[:2] and len(after[2]["endpoints"]) == 51


def test_who_takes_one_changed_slice_after_the_other_misses_no_pod() -> None:
    """A client keeps the slices by name. Pods move to earlier slices, and those are told first."""
    behind = pods(250)
    before, after = (list(endpoint_slices(SERVICE, some)) for some in (behind, behind[40:]))
    known = {one["metadata"]["name"]: set(addresses(one)) for one in before}
    stay = {pod["status"]["podIP"] for pod in behind[40:]}
    for one in after:
        known[one["metadata"]["name"]] = set(addresses(one))
        assert stay <= set[str]().union(*known.values())


@pytest.mark.parametrize(
    ("count", "not_ready", "kept"), [(1000, 9, (991, 9)), (1003, 9, (994, 6)), (1100, 9, (1000, 0))]
)
def test_endpoints_hold_a_thousand_addresses_and_say_so(count: int, not_ready: int, kept: tuple[int, int]) -> None:
    (one,) = endpoints(SERVICE, pods(count, not_ready=not_ready))
    (subset,) = one["subsets"]
    assert (len(subset["addresses"]), len(subset.get("notReadyAddresses", ()))) == kept
    marks: dict[str, Any] = one["metadata"].get("annotations", {})
    assert marks == ({"endpoints.kubernetes.io/over-capacity": "truncated"} if count > 1000 else {})
