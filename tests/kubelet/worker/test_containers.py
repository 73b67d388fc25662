"""Several containers in one pod: the order they start in, sidecars, their logs; as processes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.kubelet.conftest import WAY, Node, on_node, pod, until

from rowlock import kinds
from rowlock.api import DeleteOptions
from rowlock.objects import condition, dig, is_condition_true


def container(name: str, script: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "image": WAY.image, "command": ["sh", "-c", script], **more}


SIDE = "trap 'echo last; exit 0' TERM; echo beside; while :; do sleep 0.02; done"


def test_a_sidecar_runs_before_beside_and_after_and_the_pod_ends_with_it(tmp_path: Path) -> None:
    async def body(node: Node) -> None:
        made = pod("a", "test -e side && test -e init && echo both", spec={"initContainers": [
            container("side", "touch side; " + SIDE, restartPolicy="Always"),
            container("init", "until test -e side; do :; done; touch init"),
        ]})  # fmt: skip
        await node.add(made)
        await node.phase("a", "Succeeded")
        assert await node.log("a", container="main") == "both\n"
        said = await node.log("a", container="side")
        assert said.startswith("beside\n") and said.endswith("last\n")
        side, init = node.pod("a")["status"]["initContainerStatuses"]
        assert dig(side, "state.terminated.exitCode") == 0 and dig(init, "state.terminated.reason") == "Completed"
        await until(lambda: ("Normal", "Killing", "Stopping container side") in node.events("a"))

    on_node(tmp_path, body)


def test_a_sidecar_that_dies_runs_again_whatever_the_policy(tmp_path: Path) -> None:
    async def body(node: Node) -> None:
        flaky = container(
            "side", "echo x >> tries; test $(wc -l < tries) -ge 3 || exit 1; " + SIDE, restartPolicy="Always"
        )
        await node.add(pod("a", "sleep 300", spec={"initContainers": [flaky]}))
        await until(lambda: dig(node.pod("a"), "status.initContainerStatuses", [{}])[0].get("restartCount") == 2)
        await until(lambda: is_condition_true(node.pod("a"), "Ready"))
        assert node.pod("a")["status"]["phase"] == "Running" and node.state("a", "restartCount") == 0
        await node.delete("a", DeleteOptions(grace=1))

    on_node(tmp_path, body)


def test_what_a_pod_says_while_it_initialises(tmp_path: Path) -> None:
    async def body(node: Node) -> None:
        inits = [container("one", "until test -e go; do sleep 0.02; done; rm go"), container("two", "exit 2")]
        await node.add(pod("a", "true", spec={"initContainers": inits}))
        await until(lambda: dig(node.pod("a"), "status.initContainerStatuses", [{}])[0].get("state", {}).get("running"))
        assert node.pod("a")["status"]["phase"] == "Pending"
        assert node.state("a", "state.waiting.reason") == "PodInitializing"
        unfinished = condition(node.pod("a"), "Initialized") or {}
        assert unfinished["message"] == "containers with incomplete status: [one two]"
        (tmp_path / "pods" / node.pod("a")["metadata"]["uid"] / ".work" / "go").touch()
        await node.phase("a", "Failed")
        unfinished = condition(node.pod("a"), "Initialized") or {}
        assert unfinished["message"] == "containers with incomplete status: [two]"

    on_node(tmp_path, body)


def test_containers_of_a_pod_each_have_a_log_and_an_end(tmp_path: Path) -> None:
    async def body(node: Node) -> None:
        made = pod("a", "echo from main")
        made["spec"]["containers"] += [container("b", "echo from b; exit 4"), container("c", "echo from c")]
        await node.add(made)
        await node.phase("a", "Failed")
        logs = [await node.log("a", container=name) for name in ("main", "b", "c")]
        assert logs == ["from main\n", "from b\n", "from c\n"]
        codes = [dig(c, "state.terminated.exitCode") for c in node.pod("a")["status"]["containerStatuses"]]
        assert codes == [0, 4, 0]

    on_node(tmp_path, body)


def test_events_say_which_container_they_are_about(tmp_path: Path) -> None:
    async def body(node: Node) -> None:
        await node.add(pod("a", "true", spec={"initContainers": [container("first", "true")]}))
        await node.ended("a")

        def pulled() -> list[tuple[str, int]]:
            found = [e for e in node.store.view.all(kinds.EVENT, "default") if e["reason"] == "Pulled"]
            return sorted((e["involvedObject"]["fieldPath"], e["count"]) for e in found)

        await until(lambda: len(pulled()) == 2)
        assert pulled() == [("spec.containers{main}", 1), ("spec.initContainers{first}", 1)]

    on_node(tmp_path, body)
