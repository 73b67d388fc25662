"""One API server for the room's tests, and an HTTP client that is allowed in."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

sys.path.insert(0, str(Path(__file__).parent))

from harness import TOKEN, Running, serving


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with serving(tmp_path_factory.mktemp("api")) as running:
        yield running


@pytest.fixture(scope="session")
def client(server: Running) -> Iterator[httpx.Client]:
    import ssl

    context = ssl.create_default_context(cafile=str(server.ca))
    head = {"authorization": f"Bearer {TOKEN}"}
    with httpx.Client(base_url=server.url, verify=context, headers=head, timeout=10) as made:
        yield made


@pytest.fixture
def space(client: httpx.Client, request: pytest.FixtureRequest) -> Iterator[str]:
    """A namespace of its own; its path."""
    name = "t-" + "".join(c if c.isalnum() else "-" for c in request.node.name.lower())[:40].strip("-")
    client.post("/api/v1/namespaces", json={"metadata": {"name": name}}).raise_for_status()
    yield f"/api/v1/namespaces/{name}"
    client.delete(f"/api/v1/namespaces/{name}")
