"""Addresses and node ports of Services: what is given out, kept, refused and taken back; by equality."""

from __future__ import annotations

from typing import Any

import pytest

from rowlock import kinds
from rowlock.api import WriteOptions
from rowlock.apiserver.admission.chain import AdmissionChain
from rowlock.errors import ApiError
from rowlock.objects import Object
from rowlock.system.service_addresses import NODE_PORTS, SERVICE_ADDRESSES, allocate, keep_allocated, notes


class Others:
    """A view of nothing but Services."""

    def __init__(self, *services: Object) -> None:
        self._services = services

    def all(self, kind: kinds.Kind, namespace: str = "") -> tuple[Object, ...]:
        assert kind is kinds.SERVICE
        return self._services


def service(name: str = "a", **spec: Any) -> Object:
    ports = [{"port": 80, "protocol": "TCP"}]
    return {"metadata": {"name": name, "namespace": "n"}, "spec": {"type": "ClusterIP", "ports": ports, **spec}}


def given(obj: Object, *others: Object, old: Object | None = None) -> tuple[str, list[int]]:
    spec = allocate(old, obj, Others(*others))["spec"]  # type: ignore[arg-type] # of a view, `all` is asked
    assert spec["clusterIPs"] == [spec["clusterIP"]]
    return spec["clusterIP"], [port.get("nodePort", 0) for port in spec["ports"]]


def test_each_has_an_address_of_its_own_and_the_same_name_the_same_again() -> None:
    made: list[Object] = []
    for number in range(len(SERVICE_ADDRESSES)):
        made.append(allocate(None, service(f"s{number}"), Others(*made)))  # type: ignore[arg-type]
    assert sorted(one["spec"]["clusterIP"] for one in made) == sorted(SERVICE_ADDRESSES)
    with pytest.raises(ApiError, match="range is full"):
        given(service("one-more"), *made)
    assert given(service("s7")) == given(service("s7"))


def test_node_ports_are_given_out_kept_and_refused() -> None:
    first, second = NODE_PORTS[:2]
    one = allocate(None, service("one", type="NodePort"), None)
    assert given(one, old=one)[1] == [first]
    assert given(service("two", type="LoadBalancer"), one)[1] == [second]
    assert given(service("three", type="LoadBalancer", allocateLoadBalancerNodePorts=False), one)[1] == [0]
    taken = {"port": 80, "nodePort": first}
    with pytest.raises(ApiError, match=rf"spec.ports\[0\].nodePort: Invalid value: {first}: provided port is already allocated"):  # fmt: skip
        given(service("two", type="NodePort", ports=[taken]), one)
    with pytest.raises(ApiError, match="The range of valid ports is 30000-32767"):
        given(service("two", type="NodePort", ports=[{"port": 80, "nodePort": 8080}]))


@pytest.mark.parametrize(
    ("address", "said"),
    [
        ("10.77.1.1", "the provided IP \\(10.77.1.1\\) is not in the valid range"),  # a pod's
        ("10.77.0.1", "is not in the valid range"),  # the gateway's
        (SERVICE_ADDRESSES[3], "provided IP is already allocated"),
    ],
)
def test_addresses_that_cannot_be_had_are_refused(address: str, said: str) -> None:
    other = service("other", clusterIP=SERVICE_ADDRESSES[3])
    with pytest.raises(ApiError, match=said):
        given(service(clusterIP=address), other)
    assert given(service(clusterIP=SERVICE_ADDRESSES[4]), other)[0] == SERVICE_ADDRESSES[4]


def test_what_a_write_leaves_out_is_kept_and_what_another_type_lacks_is_given_back() -> None:
    old = allocate(None, service(type="NodePort"), None)
    address, (number,) = given(old, old=old)
    assert given(keep_allocated(old, service(type="NodePort")), old=old) == (address, [number])
    assert given(keep_allocated(old, {**old, "spec": {**old["spec"], "type": "ClusterIP"}}), old=old) == (address, [0])
    outside = keep_allocated(old, {**old, "spec": {**old["spec"], "type": "ExternalName", "externalName": "a.b"}})
    assert "clusterIP" not in outside["spec"] and allocate(old, outside, None) == outside
    headless = service(clusterIP="None", clusterIPs=["None"])
    assert allocate(None, keep_allocated(headless, service()), None)["spec"]["clusterIP"] == "None"


def test_a_headless_service_gets_none_and_an_address_stays() -> None:
    chain, options = AdmissionChain(), WriteOptions()
    head = {"apiVersion": "v1", "kind": "Service"}
    headless = chain.create(kinds.SERVICE, {**head, **service(clusterIP="None")}, options)
    assert headless["spec"]["clusterIP"] == "None"
    old = chain.create(kinds.SERVICE, {**head, **service(selector={"a": "b"})}, options)
    with pytest.raises(ApiError, match="may not change once set"):
        moved = {
            **old,
            "spec": {**old["spec"], "clusterIP": SERVICE_ADDRESSES[0], "clusterIPs": [SERVICE_ADDRESSES[0]]},
        }
        chain.update(kinds.SERVICE, old, moved, "", options)
    assert options.warnings == []


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ({"selector": {"a": "b"}}, []),
        ({"clusterIP": "None"}, []),
        ({"selector": {"a": "b"}, "ports": [{"port": 53, "protocol": "UDP"}]}, ["ports over UDP"]),
        ({}, ["a Service without a selector leads nowhere"]),
        ({"selector": {"a": "b"}, "type": "LoadBalancer"}, ["there is no load balancer"]),
        ({"type": "ExternalName", "externalName": "s.n.svc.cluster.local"}, []),
        ({"type": "ExternalName", "externalName": "example.com"}, ["externalName example.com: pods look up names of"]),
    ],
)
def test_what_has_no_effect_is_said(spec: Object, said: list[str]) -> None:
    found = list(notes(allocate(None, service(**spec), None)))
    assert len(found) == len(said) and all(a.startswith(b) for a, b in zip(found, said, strict=True))
