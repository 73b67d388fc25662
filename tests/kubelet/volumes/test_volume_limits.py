"""What a pod's volumes show is counted while it is read: a large text that thousands of files show is not made thousands of times."""

from __future__ import annotations

from base64 import b64encode
from pathlib import Path
from typing import Any

import pytest

from rowlock.kinds import Kind
from rowlock.kubelet.pod.facts import ContainerConfigError
from rowlock.kubelet.pod.spec import parse_container, parse_pod_spec
from rowlock.kubelet.volumes.account_tokens import PodTokens
from rowlock.kubelet.volumes.volumes import VolumeContext, resolve_mounts, resolve_volumes
from rowlock.objects import Object

LARGE = "x" * 250_000


class Tokens(PodTokens):
    """Gives the same one for everything."""

    def __init__(self) -> None: ...

    def token(self, *_: Any) -> str:
        return "token"


def lookup(kind: Kind, namespace: str, name: str) -> Object:
    data = {"large": LARGE, "small": "v", **({f"k{n}": "" for n in range(20_000)} if name == "many" else {})}
    if kind.name == "Secret":
        return {"data": {k: b64encode(v.encode()).decode() for k, v in data.items()}}
    return {"data": data}


def resolved(*volumes: dict[str, Any]) -> Any:
    spec = parse_pod_spec({"metadata": {"name": "p"}, "spec": {"containers": [], "volumes": list(volumes)}})
    return resolve_volumes(VolumeContext(spec, lookup, lambda _: LARGE, lambda _: LARGE, Tokens()))


def items(count: int, key: str) -> list[dict[str, Any]]:
    return [{"key": key, "path": f"f{n}"} for n in range(count)]


def fields(count: int) -> list[dict[str, Any]]:
    return [{"path": f"f{n}", "fieldRef": {"fieldPath": "metadata.annotations['large']"}} for n in range(count)]


FILES = "come to more than 16384 files or 32 MiB"


@pytest.mark.parametrize(
    ("volume", "sentence"),
    [
        pytest.param([{"downwardAPI": {"items": fields(2_000)}}], FILES, id="one field, many files"),
        pytest.param([{"configMap": {"name": "c", "items": items(2_000, "large")}}], FILES, id="one key, many files"),
        pytest.param([{"configMap": {"name": "c"}}] * 1_000, FILES, id="one object, many volumes"),
        pytest.param([{"secret": {"secretName": "s"}}] * 1_000, FILES, id="one secret, many volumes"),
        pytest.param([{"configMap": {"name": "many"}}], FILES, id="many keys"),
        pytest.param([{"projected": {"sources": [{"secret": {"name": "s"}}] * 3_000}}], FILES, id="many sources"),
        pytest.param(
            [{"projected": {"sources": [{"serviceAccountToken": {"path": f"t{n}"}} for n in range(200)]}}],
            "128 tokens of service accounts at most",
            id="many tokens",
        ),
        pytest.param([{"emptyDir": {}}] * 2_000, "the pod has 2000 volumes, and a node makes 1024 at most", id="many"),
    ],
)
def test_volumes_near_the_limit_of_an_object_are_refused(volume: list[dict[str, Any]], sentence: str) -> None:
    with pytest.raises(ContainerConfigError, match=sentence) as raised:
        resolved(*({"name": f"v{n}", **one} for n, one in enumerate(volume)))
    assert raised.value.problem.reason == "FailedMount"


def test_files_of_one_field_share_its_bytes() -> None:
    (volume,) = resolved({"name": "v", "downwardAPI": {"items": fields(100)}})
    assert len({id(content) for content, _ in volume.files.values()}) == 1 and len(volume.files) == 100


def test_of_an_object_only_the_keys_that_are_shown_count() -> None:
    sources = [{"secret": {"name": "s", "items": [{"key": "small", "path": f"f{n}"}]}} for n in range(5_000)]
    (volume,) = resolved({"name": "v", "projected": {"sources": sources}})
    assert len(volume.files) == 5_000


def test_mounts_have_a_limit(tmp_path: Path) -> None:
    mounts = [{"name": "v", "mountPath": f"/m{n}"} for n in range(1_025)]
    container = parse_container({"name": "main", "volumeMounts": mounts})
    with pytest.raises(ContainerConfigError, match="container main has 1025 mounts, and a node makes 1024 at most"):
        resolve_mounts(container, str, resolved({"name": "v", "emptyDir": {}}))
