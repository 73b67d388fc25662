"""Names in commands where pods share this machine's network: by equality, and with a real torchrun."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

import pytest
from tests.kubelet.conftest import Node, on_node, pod
from tests.kubelet.network.test_env_rewrite import known, ports

from rowlock import kinds
from rowlock.kubelet.network.command_rewrite import MOST_CHARACTERS, rewrite_command, unknown_names
from rowlock.objects import phase

M = ports("t/job-master-0", 29500)
D = ports("t/job-master-0", 29400)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (["torchrun", "--rdzv-endpoint=job-master-0:29500", "x.py"], ["torchrun", f"--rdzv-endpoint=127.0.0.1:{M}", "x.py"]),
        (["torchrun", "--rdzv_endpoint", "job-master-0.t.svc:29500"], ["torchrun", "--rdzv_endpoint", f"127.0.0.1:{M}"]),
        (["torchrun", "--rdzv-endpoint", "job-master-0"], ["torchrun", "--rdzv-endpoint", f"127.0.0.1:{D}"]),
        (["sh", "-c", "cd /x && exec torchrun --rdzv-endpoint 'job-master-0:29500' x.py"],
         ["sh", "-c", f"cd /x && exec torchrun --rdzv-endpoint '127.0.0.1:{M}' x.py"]),
        (["torchrun", "--master-addr=job-master-0", "--master-port=29500"],
         ["torchrun", "--master-addr=127.0.0.1", f"--master-port={M}"]),
        (["torchrun", "--master_port", "29500", "--master_addr", "job-master-0", "x.py"],
         ["torchrun", "--master_port", str(M), "--master_addr", "127.0.0.1", "x.py"]),
        (["torchrun", "--master_addr", "job-master-0", "x.py"],
         ["torchrun", "--master_addr", "127.0.0.1", f"--master_port={M}", "x.py"]),
        (["torchrun", "--master_addr=job-master-0"], ["torchrun", "--master_addr=127.0.0.1", f"--master_port={M}"]),
        (["sh", "-c", 'torchrun --master-addr="job-master-0" x.py'],
         ["sh", "-c", f'torchrun --master-addr="127.0.0.1" --master_port={M} x.py']),
        (["accelerate", "launch", "--main_process_ip", "job-master-0", "--main_process_port", "29500"],
         ["accelerate", "launch", "--main_process_ip", "127.0.0.1", "--main_process_port", str(M)]),
        (["sh", "-c", "torchrun --rdzv-endpoint=$MASTER_ADDR:$MASTER_PORT x.py"], []),
        (["torchrun", "--rdzv-endpoint=127.0.0.1:29500"], []),
        (["torchrun", "--rdzv-endpoint=job-master-0.example.org:29500"], []),
        (["torchrun", "--my-rdzv-endpoint=job-master-0:1", "--rdzv-endpoint-file=job-master-0:1"], []),
        (["python", "x.py", "job-master-0:29500", "--url=http://job-master-0:1", ""], []),
        ([], []),
    ],
)  # fmt: skip
def test_what_launchers_are_told_of_the_rendezvous(given: list[str], expected: list[str]) -> None:
    assert rewrite_command(given, known, ports) == (expected or given)


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("job-master-0:29500", ["job-master-0:29500"]),
        ("a --url=http://job-x.t.svc.cluster.local:80/path b", ["http://job-x.t.svc.cluster.local:80"]),
        ("curl http://job-x/path https://job-y", ["http://job-x", "https://job-y"]),
        ("cp job-master-0 job-x.py; echo job-x:y; cat /data/job-x:80; me@job-x:22 x-job-x:1 job-x.pt:3", []),
        ("image:123 example.org:80 127.0.0.1:29500 http://example.org", []),
    ],
)
def test_names_that_nobody_could_look_up(text: str, names: list[str]) -> None:
    assert unknown_names([text], known) == names


RANK = "import os, torch.distributed as d; d.init_process_group('gloo'); print('rank', d.get_rank(), 'of', d.get_world_size())"


@pytest.mark.timeout(240)
def test_two_pods_meet_by_the_name_in_their_command(tmp_path: Path) -> None:
    """Two jobs at once, with one port: each meets its own."""
    script = tmp_path / "rank.py"
    script.write_text(RANK)

    async def body(node: Node) -> None:
        for job in ("a", "b"):
            words = [
                sys.executable,
                "-m",
                "torch.distributed.run",
                "--nnodes=2",
                "--nproc-per-node=1",
                f"--rdzv-id={job}",
            ]
            words += ["--rdzv-backend=c10d", f"--rdzv-endpoint={job}-0:29400", str(script)]
            await node.add(*(pod(f"{job}-{n}", "", container={"command": words}) for n in (0, 1)))
        names = ["a-0", "a-1", "b-0", "b-1"]
        async with asyncio.timeout(200):  # eight interpreters import torch
            while not all(phase(node.pod(name)) in ("Succeeded", "Failed") for name in names):
                await asyncio.sleep(0.1)
        logs = {name: await node.log(name) for name in names}
        assert all("of 2" in log for log in logs.values()), logs

    on_node(tmp_path, body, network="rewrite")


def test_programs_that_share_a_host_name_have_different_pids(tmp_path: Path) -> None:
    """torchrun, TensorBoard and others name a process by both."""

    async def body(node: Node) -> None:
        await node.add(*(pod(name, "echo $$$$") for name in "abc"))
        await node.ended("a", "b", "c")
        pids = {int(await node.log(name)) for name in "abc"}
        assert len(pids) == 3 and 2 not in pids

    on_node(tmp_path, body, network="rewrite")


def test_a_name_that_does_not_resolve_is_said(tmp_path: Path) -> None:
    async def body(node: Node) -> None:
        meta = {"name": "tracking", "namespace": "default"}
        spec = {"clusterIP": "None", "selector": {"a": "b"}}
        await node.store.create(kinds.SERVICE, {"apiVersion": "v1", "kind": "Service", "metadata": meta, "spec": spec})
        env = [{"name": "URI", "value": "http://tracking:8000"}, {"name": "MASTER_ADDR", "value": "tracking"}]
        await node.add(pod("a", "true", container={"command": ["true", "tracking:1"], "env": env}), pod("b", "true"))
        await node.ended("a", "b")
        said = [text for _, reason, text in node.events("a") if reason == "Unsupported"]
        assert [text for text in said if text.startswith("tracking:1, http://tracking:8000: ")], said
        assert not [text for _, _, text in node.events("b") if "tracking" in text]

    on_node(tmp_path, body, network="rewrite")


def test_a_long_word_is_looked_through_once() -> None:
    """A word of a hundred thousand letters may begin at each of them: that took minutes of the event loop."""
    for word in ("x" * 120_000, "a." * 60_000, "x://" * 30_000, "a-" * 60_000):
        assert unknown_names([word], lambda _: "") == []
    assert unknown_names(["x" * (MOST_CHARACTERS + 1), "a:1"], lambda name: name) == []


def test_pods_find_a_hostname_in_the_domain_of_a_service(tmp_path: Path) -> None:
    """As pods of a JobSet call each other: the first listens where the second connects, and a later pod of the name listens there, too."""
    listen = "import os, socket; socket.create_server((os.environ['PET_MASTER_ADDR'], int(os.environ['PET_MASTER_PORT']))).accept()"
    connect = (
        "import os, socket, time\n"
        "while True:\n"
        "    try: socket.create_connection((os.environ['PET_MASTER_ADDR'], int(os.environ['PET_MASTER_PORT']))); break\n"
        "    except OSError: time.sleep(0.1)\n"
    )

    async def body(node: Node) -> None:
        meta = {"name": "set", "namespace": "default"}
        spec = {"clusterIP": "None", "selector": {"a": "b"}}
        await node.store.create(kinds.SERVICE, {"apiVersion": "v1", "kind": "Service", "metadata": meta, "spec": spec})
        env = [{"name": "PET_MASTER_ADDR", "value": "set-w-0-0.set"}, {"name": "PET_MASTER_PORT", "value": "29500"}]
        for attempt, program in (("x", listen), ("y", listen)):
            first, second = f"set-w-0-0-{attempt}", f"set-w-0-1-{attempt}"
            for name, text in ((first, program), (second, connect)):
                container = {"command": [sys.executable, "-c", text], "env": env}
                await node.add(pod(name, "", container=container, spec={"hostname": name[:-2], "subdomain": "set"}))
            await node.ended(first, second)
            assert [phase(node.pod(name)) for name in (first, second)] == ["Succeeded"] * 2
        kept = json.loads((node.data / "ports.json").read_text())
        assert [entry for entry in kept if "set-w" in entry] == ["default/set-w-0-0.set:29500"]

    on_node(tmp_path, body, network="rewrite")
