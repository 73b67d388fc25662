"""`rowlock ui` and its port on a live server: plain HTTP on loopback, which is found again after a restart."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest
from tests.end_to_end.cluster import Cluster, lent


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    """A cluster that is not started yet: call `up`."""
    with lent(tmp_path) as made:
        yield made


def test_the_address_opens_a_session_that_outlives_the_server(cluster: Cluster) -> None:
    cluster.up()
    printed = cluster.json("rowlock", "ui", "--no-browser", "--json")
    url, _, code = printed["url"].partition("#code=")
    assert urlsplit(url).hostname == "127.0.0.1"
    with httpx.Client(base_url=url) as page:
        assert "<html" in page.get("").text
        key = page.post("api/v1/ui/session", json={"code": code}).json()["key"]
        workloads = page.get("api/v1/workloads", headers={"x-rowlock-key": key})
        assert workloads.json() == {"workloads": []}
        cluster.run("rowlock", "down", "--yes")
        cluster.up()
        assert json.loads((cluster.data / "server.json").read_text())["ui"] == url
        assert page.get("api/v1/workloads", headers={"x-rowlock-key": key}).status_code == 200


def test_the_address_is_printed_and_says_how_long_it_works(cluster: Cluster) -> None:
    cluster.up()
    said = cluster.run("rowlock", "ui", "--no-browser")
    assert "#code=" in said and "works once" in said
    assert cluster.run("rowlock", "status").count(json.loads((cluster.data / "server.json").read_text())["ui"]) == 1


def test_without_a_server_it_says_how_to_start_one(cluster: Cluster) -> None:
    assert "rowlock up -d" in cluster.run("rowlock", "ui", code=1)


def test_an_address_for_somebody_else_has_his_rights(cluster: Cluster, tmp_path: Path) -> None:
    people = tmp_path / "users.csv"
    people.touch(0o600)
    people.write_text("vera-vera-vera-vera-vera,vera,1,rowlock:viewers\n")
    cluster.up("--users", str(people))
    url, _, code = cluster.json("rowlock", "ui", "--user", "vera", "--json")["url"].partition("#code=")
    with httpx.Client(base_url=url) as page:
        headers = {"x-rowlock-key": page.post("api/v1/ui/session", json={"code": code}).json()["key"]}
        assert page.get("api/v1/ui/session", headers=headers).json()["user"] == "vera"
        refused = page.post("api/v1/org-unit/projects", headers=headers, json={"name": "team-b"})
        assert refused.status_code == 403
    assert "no user bob" in cluster.run("rowlock", "ui", "--user", "bob", code=1)
