"""Kubeflow's SDK 0.5.0, unmodified, on the embedded cluster: functions become TrainJobs whose ranks run; and the page that says so.

Its package cannot be installed beside kubeflow-training 1.9, so that it has an environment of its own (`make .venv-kubeflow-0.5.0`).
"""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.end_to_end.cluster import REPO, Cluster, lent

pytest.importorskip("torch", reason="torch is not installed")
pytestmark = pytest.mark.timeout(1200)
ENVIRONMENT = ".venv-kubeflow-0.5.0"
PYTHON = REPO / ENVIRONMENT / "bin" / "python"
SCRIPT = Path(__file__).with_name("kubeflow_sdk_script.py")
PAGE = (REPO / "docs" / "trainer.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def python() -> str:
    if not PYTHON.exists():
        pytest.skip("Kubeflow's SDK 0.5.0 is not installed in an environment of its own (make .venv-kubeflow-0.5.0)")
    return str(PYTHON)


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with lent(tmp_path_factory.mktemp("sdk")) as made:
        yield made


def block(language: str) -> str:
    found = re.search(rf"^```{language}\n(.*?)^```", PAGE, re.M | re.S)
    assert found, f"docs/trainer.md has no block of {language}"
    return found[1]


def test_the_page_trains_a_function_on_two_ranks(machine: Cluster, python: str, tmp_path: Path) -> None:
    first, *commands = block("sh").splitlines()
    version = re.fullmatch(r"pip install kubeflow==(\S+)", first)
    assert version and ENVIRONMENT.endswith(f"-{version[1]}"), "the page installs another version than `make` does"
    (tmp_path / "train.py").write_text(block("python"))
    script = "\n".join(["set -e", *commands, f"exec {python} train.py"])
    said = machine.run("bash", "-c", script, cwd=tmp_path, timeout=600)
    assert "rank 0 counts 2 ranks" in said
    assert "Traceback" not in said and "not available" not in said, said


def result(machine: Cluster, python: str, name: str) -> dict[str, Any]:
    done = subprocess.run([python, str(SCRIPT), name], env=machine.env, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stdout + done.stderr + machine.last_words()
    lines = done.stdout.splitlines()
    found: dict[str, Any] = json.loads(lines[-1])
    return {**found, "printed": lines[:-1]}


def test_a_job_from_the_list_of_runtimes_to_its_end(machine: Cluster, python: str) -> None:
    machine.up()
    runtime = machine.api("GET", "/apis/trainer.kubeflow.org/v1alpha1/clustertrainingruntimes/torch-distributed")
    pod = runtime["spec"]["template"]["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
    machine.run("rowlock", "image", "add", pod["containers"][0]["image"], "--host")
    found = result(machine, python, "life")
    assert {"torch-distributed", "jax-distributed", "deepspeed-distributed"} <= set(found["runtimes"])
    assert any(re.match(r"torch +\d", line) for line in found["printed"]), "get_runtime_packages prints the packages"
    for place, rank in (("followed", 0), ("node-1", 1)):  # torchrun complains beside it when the other one ends first
        assert [line for line in found[place] if line.startswith("hello")] == [f"hello from rank {rank} of 2"]
    assert found["status"] == "Complete" and found["steps"] == {"node-0": "Succeeded", "node-1": "Succeeded"}
    assert {"Pod Started", "JobSet AllJobsCompleted"} <= set(found["events"])
    assert found["listed"] and '"reason":"NotFound"' in found["after"]
    assert found["warnings"] == []


def test_what_cannot_run_says_why(machine: Cluster, python: str) -> None:
    machine.up()
    found = result(machine, python, "refusals")
    assert found["unknown"].startswith("Failed to get Runtime: torch-distribute")
    assert 'trainjobs.trainer.kubeflow.org \\"nobody\\" not found' in found["not there"]
    assert "rowlock image add nvcr.io/nvidia/jax:25.10-py3 --host" in found["no image"]
    assert "rowlock image add ghcr.io/kubeflow/trainer/" in found["tuned"]
    assert found["tuned steps"] == ["dataset-initializer", "model-initializer"]
    assert "Katib" in found["optimizer"] and "TrainerClient.train" in found["optimizer"]
