"""Names and ports rewritten: the table, by equality."""

import json

import pytest

from rowlock.kubelet.network.env_rewrite import ADDRESS_VARIABLES, rewrite_environment, rewrite_hostfile


def known(text: str) -> str:
    name, _, rest = text.partition(".")
    return f"t/{name}" if name.startswith("job-") and rest.partition(".")[0] in ("", "t") else ""


def ports(pod: str, port: int) -> int:
    return 20000 + sum(map(ord, pod)) % 100 * 10 + port % 10


M = ports("t/job-master-0", 23456)
W0, W1 = ports("t/job-worker-0", 2222), ports("t/job-worker-1", 2222)
CLUSTER = {"worker": ["job-worker-0.t.svc:2222", "job-worker-1.t.svc:2222"]}


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (
            {"MASTER_ADDR": "job-master-0", "MASTER_PORT": "23456"},
            {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(M)},
        ),
        (
            {"PET_MASTER_ADDR": "job-master-0", "PET_MASTER_PORT": "23456"},
            {"PET_MASTER_ADDR": "127.0.0.1", "PET_MASTER_PORT": str(M)},
        ),
        (
            {"PET_RDZV_ENDPOINT": "job-master-0.t.svc:23456"},
            {"PET_RDZV_ENDPOINT": f"127.0.0.1:{M}"},
        ),
        (
            {"COORDINATOR_ADDRESS": "job-worker-0", "COORDINATOR_PORT": "6666"},
            {"COORDINATOR_ADDRESS": "127.0.0.1", "COORDINATOR_PORT": str(ports("t/job-worker-0", 6666))},
        ),
        (
            {"WORKER_ADDRS": "job-worker-0,job-worker-1", "WORKER_PORT": "9999"},
            {"WORKER_ADDRS": "127.0.0.1,127.0.0.1", "WORKER_PORT": str(ports("t/job-me", 9999))},
        ),
        ({"PADDLE_MASTER": "127.0.0.1:36543"}, {"PADDLE_MASTER": f"127.0.0.1:{ports('t/job-me', 36543)}"}),
        ({"MASTER_ADDR": "example.org", "MASTER_PORT": "1"}, {"MASTER_ADDR": "example.org", "MASTER_PORT": "1"}),
        ({"MASTER_PORT": "23456", "X": "job-master-0"}, {"MASTER_PORT": "23456", "X": "job-master-0"}),
        ({"TF_CONFIG": "not json"}, {"TF_CONFIG": "not json"}),
        (
            {
                "TF_CONFIG": json.dumps(
                    {"cluster": CLUSTER, "task": {"type": "worker", "index": 1}, "environment": "cloud"}
                )
            },
            {
                "TF_CONFIG": f'{{"cluster":{{"worker":["127.0.0.1:{W0}","127.0.0.1:{W1}"]}},'
                '"task":{"type":"worker","index":1},"environment":"cloud"}'
            },
        ),
        (
            {"TF_CONFIG": '{"cluster":{"worker":{"1":"job-worker-1.t.svc:2222"},"ps":null},"task":{}}'},
            {"TF_CONFIG": f'{{"cluster":{{"worker":{{"1":"127.0.0.1:{W1}"}},"ps":null}},"task":{{}}}}'},
        ),
    ],
)
def test_rewriting(given: dict[str, str], expected: dict[str, str]) -> None:
    assert rewrite_environment(given, "t/job-me", known, ports) == expected


def test_a_hostfile() -> None:
    assert rewrite_hostfile("job-worker-0 slots=2\nother slots=1\n", known) == "127.0.0.1 slots=2\nother slots=1\n"
    lines = "other slots=1\njob-worker-0 slots=2\njob-worker-1\nmore\n"
    assert rewrite_hostfile(lines, known) == "other slots=1\n127.0.0.1 slots=3\nmore\n"
    assert rewrite_hostfile("", known) == ""


def test_every_row_of_the_table_names_a_form() -> None:
    assert {form for form, _ in ADDRESS_VARIABLES.values()} == {"host", "host:port", "hosts", "tf"}
