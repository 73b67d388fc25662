"""Who programs are, and what they leave as their last words."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.kubelet.conftest import Node, on_node, pod, until

from rowlock.api import DeleteOptions
from rowlock.kubelet.pod.facts import ContainerConfigError
from rowlock.kubelet.pod.spec import ContainerSpec, PodSpec, parse_pod_spec
from rowlock.kubelet.worker.security_context import Account, effective_security_context, find_account
from rowlock.objects import Object, dig

ADA = Account("ada", 1000, 100, "/home/ada")
ROOT_ONLY = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
NOBODY = find_account(65534)


def asking(of_pod: Object, of_container: Object) -> tuple[PodSpec, ContainerSpec]:
    container = {"name": "main", "securityContext": of_container}
    meta = {"name": "p", "namespace": "n", "uid": "u"}
    made = parse_pod_spec({"metadata": meta, "spec": {"securityContext": of_pod, "containers": [container]}})
    return made, made.main_containers[0]


@pytest.mark.parametrize(
    ("me", "of_pod", "of_container", "spec"),
    [
        (0, {}, {}, {}),
        (0, {"runAsUser": 1000}, {}, {"uid": 1000, "gid": 100, "groups": []}),
        (0, {"runAsUser": 77}, {"runAsUser": 1000, "runAsGroup": 5}, {"uid": 1000, "gid": 5, "groups": []}),
        (0, {"fsGroup": 9, "supplementalGroups": [8]}, {}, {"uid": None, "gid": None, "groups": [8, 9]}),
        (0, {}, {"allowPrivilegeEscalation": False}, {"no_new_privileges": True}),
        (501, {"runAsUser": 1000, "fsGroup": 9}, {}, {}),
        (501, {"runAsNonRoot": True}, {}, {}),
    ],
)
def test_who_a_program_is(me: int, of_pod: Object, of_container: Object, spec: Object) -> None:
    assert (
        effective_security_context(*asking(of_pod, of_container), euid=me, accounts={1000: ADA}.get).user_spec() == spec
    )


@pytest.mark.parametrize(
    ("of_pod", "of_container", "sentence"),
    [
        ({"runAsUser": 4242}, {}, "container main: runAsUser 4242 is not a user of this machine, and programs run as its users: name another one (`id -u NAME`), or create it with `useradd -u 4242 NAME`"),
        ({"runAsNonRoot": True}, {}, 'container has runAsNonRoot and image will run as root (pod: "p_n(u)", container: main)'),
        ({"runAsNonRoot": True}, {"runAsUser": 0}, 'container\'s runAsUser breaks non-root policy (pod: "p_n(u)", container: main)'),
    ],
)  # fmt: skip
def test_who_a_program_may_not_be(of_pod: Object, of_container: Object, sentence: str) -> None:
    with pytest.raises(ContainerConfigError) as refused:
        effective_security_context(*asking(of_pod, of_container), euid=0, accounts={1000: ADA}.get)
    assert refused.value.problem.message == sentence
    assert refused.value.problem.reason == "CreateContainerConfigError"


@ROOT_ONLY
@pytest.mark.skipif(NOBODY is None, reason="this machine has no user nobody")
@pytest.mark.parametrize("network", ["rewrite", "auto"])
def test_a_program_is_who_it_should_be_and_its_group_owns_its_volumes(tmp_path: Path, network: str) -> None:
    async def body(node: Node) -> None:
        mounts = [{"name": "w", "mountPath": "/rowlock-w"}]
        container = {"securityContext": {"runAsUser": 65534, "runAsGroup": 65534}, "volumeMounts": mounts}
        spec = {"securityContext": {"fsGroup": 4321}, "volumes": [{"name": "w", "emptyDir": {}}]}
        script = "id -u; id -g; id -G; echo $USER; touch here; echo mine > /rowlock-w/f; stat -c '%u %g' /rowlock-w/f"
        await node.add(pod("a", script, container=container, spec=spec))
        await node.ended("a")
        said = (await node.log("a")).splitlines()
        assert said[:2] == ["65534", "65534"] and set(said[2].split()) == {"65534", "4321"}, said
        assert said[3:] == [NOBODY.name if NOBODY else "", "65534 4321"]

    on_node(tmp_path, body, network=network)


@ROOT_ONLY
def test_an_unknown_user_waits_with_a_sentence(tmp_path: Path) -> None:
    async def body(node: Node) -> None:
        await node.add(pod("a", "true", container={"securityContext": {"runAsUser": 4242424}}))
        await until(lambda: node.state("a", "state.waiting.reason") == "CreateContainerConfigError")
        assert "runAsUser 4242424 is not a user of this machine" in node.state("a", "state.waiting.message")
        await until(lambda: any(r == "Failed" and "runAsUser 4242424" in m for _, r, m in node.events("a")))
        await node.delete("a", DeleteOptions(grace=0))

    on_node(tmp_path, body)


@pytest.mark.parametrize(
    ("container", "script", "message"),
    [
        ({}, "echo 'out of ideas' > /dev/termination-log; exit 1", "out of ideas\n"),
        ({"terminationMessagePath": "/rowlock-last/words"}, "echo done > /rowlock-last/words", "done\n"),
        (
            {"terminationMessagePolicy": "FallbackToLogsOnError"},
            "echo one; sleep 0.1; echo two >&2; exit 1",
            "one\ntwo\n",
        ),
        ({"terminationMessagePolicy": "FallbackToLogsOnError"}, "echo one", None),
        ({}, "echo one; exit 1", None),
    ],
)
def test_last_words(tmp_path: Path, container: Object, script: str, message: str | None) -> None:
    async def body(node: Node) -> None:
        if node.kubelet.node.mount_problem and "rowlock-last" in script + str(container):
            pytest.skip("a message file needs a mount namespace")
        await node.add(pod("a", script, container=container))
        await node.ended("a")
        assert node.state("a", "state.terminated.message") == message
        assert not os.path.exists("/dev/termination-log") and dig(node.pod("a"), "status.phase")

    on_node(tmp_path, body)


@ROOT_ONLY
@pytest.mark.skipif(NOBODY is None, reason="this machine has no nobody")
def test_a_volume_that_its_user_may_not_write_to_is_one_sentence(tmp_path: Path) -> None:
    place = tmp_path / "shared"
    place.mkdir(mode=0o755)
    volumes = [
        {"name": "shared", "hostPath": {"path": str(place)}},
        {"name": "mine", "emptyDir": {}},
        {"name": "read", "hostPath": {"path": str(place)}},
    ]
    mounts = [
        {"name": "shared", "mountPath": "/mnt/shared"},
        {"name": "mine", "mountPath": "/mnt/mine"},
        {"name": "read", "mountPath": "/mnt/read", "readOnly": True},
    ]
    wants = {"volumes": volumes, "securityContext": {"runAsUser": 65534}}

    async def body(node: Node) -> None:
        await node.add(pod("p", "echo x > /mnt/mine/file", container={"volumeMounts": mounts}, spec=wants))
        await node.phase("p", "Succeeded")
        await until(lambda: any(r == "VolumeNotWritable" for _, r, _ in node.events("p")), "the warning")
        (said,) = [m for _, r, m in node.events("p") if r == "VolumeNotWritable"]
        assert said == (
            f"volume shared ({place}) at /mnt/shared belongs to user 0, group 0, mode 755, and user 65534 may not write"
            " there: chown it or choose another"
        )

    os.chmod(tmp_path, 0o755)
    on_node(tmp_path, body)
