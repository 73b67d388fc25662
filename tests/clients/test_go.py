"""client-go, as controllers use it: built once into the cache of the real cluster, then run against our server."""

from __future__ import annotations

import hashlib
import os
import shutil
from pathlib import Path

import pytest
from tests.clients.conftest import Site, run

SOURCE = Path(__file__).with_name("go")
WORKED = (
    "discovery", "informer lists", "informer sees a creation", "informer sees a patch", "informer sees a deletion",
    "status update", "errors", "apply", "delete collection", "pages", "informer of jobs", "operator makes a pod",
    "one leads", "two takes over",
)  # fmt: skip


@pytest.fixture(scope="module")
def client() -> Path:
    """Compiling client-go takes minutes on a cold machine, so only `ROWLOCK_GO_CLIENT=build` does it."""
    content = b"".join(path.read_bytes() for path in sorted(SOURCE.iterdir()) if path.is_file())
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "rowlock" / "go-client"
    built = cache / hashlib.sha256(content).hexdigest()[:12]
    if built.exists():
        return built
    if not shutil.which("go"):
        pytest.skip("Go is not installed: the client-go program cannot be built")
    if os.environ.get("ROWLOCK_GO_CLIENT") != "build":
        pytest.skip("the client-go program is not built: set ROWLOCK_GO_CLIENT=build (minutes, once)")
    done = run("go", "build", "-o", str(built), ".", cwd=SOURCE, env={**os.environ, "GOPROXY": "off"})
    if done.returncode:
        pytest.skip(f"the client-go program cannot be built from Go's module cache: {done.stderr.strip()[-200:]}")
    return built


@pytest.mark.timeout(900)  # the first of them compiles
@pytest.mark.parametrize("streaming", ["true", "false"])
def test_client_go(client: Path, site: Site, streaming: str) -> None:
    env = {**os.environ, "KUBE_FEATURE_WatchListClient": streaming}
    done = run(str(client), str(site.kubeconfig), site.namespace, env=env)
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.splitlines() == list(WORKED)
