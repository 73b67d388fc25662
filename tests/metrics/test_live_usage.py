"""The whole way of a figure: a program, the sampler, REST, Prometheus, and the archive when the job is gone."""

from __future__ import annotations

import json
import ssl
import sys
import urllib.request
from pathlib import Path

import pytest
from tests.end_to_end.cluster import Cluster, lent

PROGRAM = "import time; t = time.process_time()\nwhile time.process_time() - t < 0.5: pass\nx = b'x' * (40 << 20); time.sleep(600)"


def scrape(cluster: Cluster) -> str:
    facts = json.loads((cluster.data / "server.json").read_text())
    token = (cluster.data / "token").read_text().strip()
    request = urllib.request.Request(facts["url"] + "/metrics", headers={"Authorization": f"Bearer {token}"})
    tls = ssl.create_default_context(cafile=str(cluster.data / "ca.crt"))
    with urllib.request.urlopen(request, context=tls, timeout=200) as answer:
        return str(answer.read().decode())


@pytest.mark.skipif(sys.platform != "linux", reason="process trees are read from /proc, which is Linux's")
def test_what_a_job_used_is_told_while_it_runs_and_kept_when_it_is_gone(tmp_path: Path) -> None:
    with lent(tmp_path) as cluster:
        cluster.up()
        cluster.run("rowlock", "run", "-d", "--clean-env", "--name", "busy", "--", "python", "-c", PROGRAM)
        (job,) = cluster.json("rowlock", "list", "--json")

        def memory() -> float:
            usage = cluster.json("rowlock", "top", "busy", "--json")["usage"]
            return float(usage["memoryBytes"] or 0)

        cluster.until(lambda: memory() > 40 << 20, "the sampler to see the program's memory")
        assert 'pod_cpu_usage_seconds_total{namespace="runai-default"' in scrape(cluster)
        cluster.run("rowlock", "delete", "-y", "busy")
        query = "start=2026-01-02T03:04:05Z&end=2090-01-02T03:04:05Z&numberOfSamples=2"
        path = f"/api/v1/workloads/{job['id']}/metrics?metricType=CPU_USAGE_CORES,CPU_MEMORY_USAGE_BYTES&{query}"

        def kept() -> bool:
            cores, size = cluster.api("GET", path)["measurements"]
            return bool(cores["values"]) and float(size["values"][-1]["value"]) > 0

        cluster.until(kept, "the archive to have what it used")
        assert cluster.json("rowlock", "top", "--json")["workloads"] == []
