"""The recorded walk of kubectl through pods, in containers: the steps that hold for processes hold here."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from tests.containers.conftest import IMAGE
from tests.kubectl.walks import missing, play


def test_kubectl_sees_in_containers_what_it_sees_on_a_real_cluster(docker: str, tmp_path: Path) -> None:
    if why := missing():
        pytest.skip(why)
    subprocess.run(["docker", "tag", IMAGE, "busybox:1"], check=True)
    outcome = play("pods", tmp_path / "walk", docker)
    assert not outcome.wrong, "\n".join(outcome.wrong)
