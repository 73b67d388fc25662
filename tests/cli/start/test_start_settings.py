"""A start after another: nodes and GPUs of the last one hold, and what does not hold is named."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rowlock.cli.start.settings import NextStart, continue_start, next_start

USUAL = {"kubeconfig": None, "nodes": 1, "simulated_gpus": 0, "max_pods": 1000, "network": "auto", "bind": ""}


def test_a_silent_start_has_the_nodes_and_gpus_of_the_last_one() -> None:
    former = {**USUAL, "nodes": 2, "simulated_gpus": 4}
    said = ("Nodes and GPUs are those of the last start: --nodes 2 --simulated-gpus 4 (say --nodes to change them).",)
    assert continue_start(former, {}) == NextStart({"nodes": 2, "simulated_gpus": 4}, said)
    assert continue_start(former, {"port": 7000}) == NextStart({"nodes": 2, "simulated_gpus": 4, "port": 7000}, said)


def test_a_start_that_says_its_nodes_has_those_alone_and_names_what_is_gone() -> None:
    former = {**USUAL, "nodes": 2, "simulated_gpus": 4}
    assert continue_start(former, {"nodes": 1}) == NextStart(
        {"nodes": 1}, ("Other than the last start, this one is without --simulated-gpus 4.",)
    )
    assert continue_start(former, {"nodes": 3, "simulated_gpus": 1}) == NextStart({"nodes": 3, "simulated_gpus": 1})


def test_flags_that_open_doors_count_for_one_start_and_are_named() -> None:
    former = {**USUAL, "bind": "0.0.0.0", "users": "/etc/users.csv"}
    assert continue_start(former, {}) == NextStart(
        {}, ("Other than the last start, this one is without --bind 0.0.0.0 --users /etc/users.csv.",)
    )


def test_a_real_cluster_is_no_machine_with_nodes_of_its_own() -> None:
    former = {**USUAL, "kubeconfig": "/k"}
    assert continue_start(former, {"kubeconfig": "/k"}) == NextStart({"kubeconfig": "/k"})
    assert "without --kubeconfig /k" in continue_start(former, {}).sentences[0]
    assert "nodes" not in continue_start({**USUAL, "nodes": 2}, {"kubeconfig": "/k"}).settings


@pytest.mark.parametrize("flags", [None, {}, [], "x", {"nodes": None}, {"nodes": "2; x"}, {"nodes": True}])
def test_what_an_older_version_or_a_broken_file_says_stops_no_start(tmp_path: Path, flags: object) -> None:
    assert next_start(str(tmp_path), {}) == NextStart({})
    (tmp_path / "server.json").write_text(json.dumps({"url": "https://127.0.0.1:1", "flags": flags}))
    assert next_start(str(tmp_path), {}).settings == {}


def test_counts_of_an_older_server_json_are_whole_again() -> None:
    assert continue_start({"cpus_per_node": 2.0, "nodes": float("nan")}, {}).settings == {"cpus_per_node": 2}
