"""What a pod gives its programs is counted while it is made: nothing grows beyond what exec takes. By equality."""

from __future__ import annotations

import tracemalloc
from base64 import b64encode
from decimal import Decimal
from typing import Any

import pytest

from rowlock.kinds import Kind
from rowlock.kubelet.pod.exec_space import LONGEST_STRING, MOST_REFERENCES, ExecSpace, exec_limit
from rowlock.kubelet.pod.facts import ContainerConfigError
from rowlock.kubelet.pod.spec import parse_container, parse_pod_spec
from rowlock.kubelet.worker.container_paths import ContainerPaths, ImageCopy, outermost
from rowlock.kubelet.worker.environment import EnvironmentContext, declared_environment
from rowlock.objects import Object

LARGE = "x" * (LONGEST_STRING - 100)
MEBIBYTE = "m" * (1 << 20)
PLACE = EnvironmentContext("n", "10.77.1.1", cpus=Decimal(1))
POD = parse_pod_spec(
    {"metadata": {"name": "p", "namespace": "team", "annotations": {"large": LARGE}}, "spec": {"containers": []}}
)


def lookup(kind: Kind, namespace: str, name: str) -> Object | None:
    data: dict[str, dict[str, str]] = {
        "large": {"k": LARGE},
        "whole": {"k": MEBIBYTE},
        "many": {f"k{n}": "" for n in range(5000)},
    }
    if kind.name == "Secret":
        return {"data": {k: b64encode(v.encode()).decode() for k, v in data[name].items()}}
    return {"data": data[name]}


def doubled(times: int) -> list[dict[str, Any]]:
    return [{"name": "V", "value": "ab"}, *({"name": "V", "value": "$(V)$(V)"} for _ in range(times))]


def repeated(value: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"name": f"V{n}", **value} for n in range(2000)]


@pytest.mark.parametrize(
    ("container", "sentence"),
    [
        pytest.param({"env": doubled(60)}, "variable V of container main comes to 131072 bytes or more", id="doubles"),
        pytest.param({"env": [{"name": "L", "value": LARGE}, *repeated({"value": "$(L)"})]}, "come to more than", id="one that many use"),
        pytest.param({"env": repeated({"valueFrom": {"fieldRef": {"fieldPath": "metadata.annotations['large']"}}})}, "come to more than", id="field"),
        pytest.param({"env": repeated({"valueFrom": {"configMapKeyRef": {"name": "large", "key": "k"}}})}, "come to more than", id="key"),
        pytest.param({"env": repeated({"valueFrom": {"secretKeyRef": {"name": "large", "key": "k"}}})}, "come to more than", id="secret's key"),
        pytest.param({"envFrom": [{"prefix": f"P{n}", "configMapRef": {"name": "large"}} for n in range(2000)]}, "come to more than", id="envFrom"),
        pytest.param({"envFrom": [{"secretRef": {"name": "whole"}}]}, "variable k of container main comes to", id="a whole MiB"),
        pytest.param({"envFrom": [{"prefix": f"P{n}", "configMapRef": {"name": "many"}} for n in range(2000)]}, "come to more than", id="many keys"),
        pytest.param({"env": [{"name": f"V{n}", "value": "$$" * 1000} for n in range(700)]}, "more than 32768 references", id="dollars"),
        pytest.param({"env": [{"name": "E", "value": ""}, *({"name": f"V{n}", "value": "$(E)" * 1000} for n in range(300))]}, "more than 32768 references", id="empty"),
        pytest.param({"env": [{"name": "U", "value": "€" * 50_000}]}, "variable U of container main comes to 131072 bytes", id="bytes, not characters"),
    ],
)  # fmt: skip
def test_variables_that_exec_would_refuse_are_not_made(container: dict[str, Any], sentence: str) -> None:
    spec = parse_container({"name": "main", **container})
    tracemalloc.start()
    try:
        with pytest.raises(ContainerConfigError, match=sentence) as raised:
            declared_environment(POD, spec, PLACE, lookup, ExecSpace("main"))
        assert tracemalloc.get_traced_memory()[1] < 4 * exec_limit() + (8 << 20)
    finally:
        tracemalloc.stop()
    assert raised.value.problem.reason == "CreateContainerConfigError"


def test_arguments_share_the_space_of_the_variables() -> None:
    space, env = ExecSpace("main"), {"L": LARGE}
    with pytest.raises(ContainerConfigError, match="come to more than"):
        for _ in range(200_000):
            space.argument("$(L)", env)
    with pytest.raises(
        ContainerConfigError, match="an argument or a path of container main comes to 131072 bytes or more"
    ):
        ExecSpace("main").argument("$(L)$(L)", env)
    with pytest.raises(ContainerConfigError, match="an argument or a path"):
        ExecSpace("main").expand("$(L)" * 100_000, env)


def test_what_exec_takes_is_made() -> None:
    space = ExecSpace("main")
    env = declared_environment(POD, parse_container({"name": "main", "env": doubled(15)}), PLACE, lookup, space)
    assert env == {"V": "ab" * (1 << 15)}
    assert space.argument("$(V)" + "$(NONE)" + "$$" * 10, {"V": ""}) == "$(NONE)" + "$" * 10
    assert ExecSpace("main").expand("$(E)" * (MOST_REFERENCES - 1) + "end", {"E": ""}) == "end"


def test_a_volume_among_thousands_is_found() -> None:
    targets = ["/data", "/data/inner", "/a b", "/z", *(f"/v/{n}" for n in range(5000))]
    paths = ContainerPaths(ImageCopy("", ""), outermost(targets))
    assert len(paths.volume_paths) == 5003
    inside = ["/data", "/data/x", "/data/inner/y", "/v/4999", "/v/0/deep", "/z/"]
    outside = ["/dat", "/data2", "/v", "/v/5000", "", "z", "/"]
    assert [p for p in (*inside, *outside) if paths._is_in_volume(p)] == inside
