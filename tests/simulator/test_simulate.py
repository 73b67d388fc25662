"""`rowlock simulate`: small traces whose story can be told by hand, and what must hold for any."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import yaml

from rowlock.simulator import chart, metrics, trace_generator
from rowlock.simulator.engine import SimulatedNodes, Simulation, SimulationResult
from rowlock.simulator.simulate import main
from rowlock.simulator.trace import TraceError, parse_trace

REPO = Path(__file__).resolve().parents[2]


def play(text: str, nodes: int = 1, gpus: int = 2, grace: float = 10.0) -> SimulationResult:
    return Simulation(parse_trace(yaml.safe_load(text)), SimulatedNodes(nodes, gpus), grace=grace).run()


def times(story: SimulationResult) -> dict[str, tuple[float | None, float | None]]:
    return {name: (r.first_started, r.ended_at) for name, r in story.runs.items()}


ONE_AFTER_THE_OTHER = """
projects: [{name: a, quota: 2}]
jobs:
- {name: x, project: a, gpus: 2, duration: 100}
- {name: y, project: a, gpus: 2, at: 10, duration: 50}
"""


def test_one_after_the_other() -> None:
    story = play(ONE_AFTER_THE_OTHER)
    assert times(story) == {"x": (0.0, 100.0), "y": (100.0, 150.0)}
    found = metrics.summarize(story)
    assert found["utilisation"] == 1.0 and found["makespanSeconds"] == 150.0
    assert found["waitSeconds"] == {"p50": 0.0, "p90": 90.0, "p99": 90.0, "max": 90.0, "mean": 45.0}
    assert found["jain"] == 1.0 and found["taken"] == {}
    assert found["projects"][0]["gpuHours"] == pytest.approx(300 / 3600, abs=0.005)


def test_reclaim_costs_work_since_the_checkpoint() -> None:
    """y takes its quota from x at 25 s; x has checkpoints every 10 s: 5 s of it are lost, and it resumes by itself."""
    story = play("""
projects: [{name: a, quota: 0}, {name: b, quota: 2}]
jobs:
- {name: x, project: a, gpus: 2, duration: 100, checkpoint: 10}
- {name: y, project: b, gpus: 2, at: 25, duration: 50}
""")
    assert times(story)["y"] == (35.0, 85.0), "ten seconds of grace"
    assert times(story)["x"] == (0.0, 85.0 + 80.0)
    found = metrics.summarize(story)
    assert found["taken"] == {"reclaim": 1} and found["projects"][0]["evictions"] == 1
    assert story.runs["x"].work_lost == pytest.approx(5.0)


def test_an_elastic_job_grows_and_is_sooner_done() -> None:
    """One pod alone for 100 s, then two: 200 s of work for two pods take 100 + 150 s."""
    story = play("""
projects: [{name: a, quota: 2}]
jobs:
- {name: x, project: a, gpus: 1, duration: 100}
- {name: e, project: a, gpus: 1, pods: 2, min: 1, duration: 200, at: 1}
""")
    assert times(story)["e"][1] == pytest.approx(1 + 99 + (400 - 99) / 2)


def test_what_can_never_run_is_told() -> None:
    story = play("""
projects: [{name: a, quota: 2}]
jobs:
- {name: x, project: a, gpus: 1, duration: 5}
- {name: wide, project: a, gpus: 3, duration: 5}
""")
    found = metrics.summarize(story)
    assert found["jobs"] == {"submitted": 2, "completed": 1, "neverStarted": 1}
    assert "No node is large enough" in found["stuck"]["wide"] and "never ran    wide: " in metrics.format_summary(
        found
    )


def test_equal_projects_get_equal_parts() -> None:
    """Scenario 61: endless single-GPU jobs of different lengths in two equal projects on eight cards."""
    story = play("""
projects: [{name: a, quota: 4}, {name: b, quota: 4}]
jobs:
- {name: long, project: a, gpus: 1, duration: 50m, count: 40}
- {name: short, project: b, gpus: 1, duration: 7m, count: 300}
""", gpus=8)  # fmt: skip
    both = [p for p in story.points if p.at > 60 and all(w >= 800 for w in p.requested)]
    assert len(both) > 50 and all(abs(p.held[0] - 400) <= 100 for p in both)


@pytest.mark.parametrize("seed", range(4))
def test_any_story_adds_up(seed: int) -> None:
    """Whatever the seed: cards are never overbooked, every job gets exactly its work, and twice is the same."""
    wanted = trace_generator.parse_options(f"jobs=60,seed={seed},projects=3,load=1.5,build=0.2")
    trace = trace_generator.generate_trace(wanted, 3, 4)
    assert trace == trace_generator.generate_trace(wanted, 3, 4)
    story = Simulation(trace, SimulatedNodes(3, 4)).run()
    assert all(0 <= sum(p.held) <= 1200 for p in story.points)
    for run in story.runs.values():
        assert (
            run.ended_at is not None
            and run.first_started is not None
            and run.work_done == pytest.approx(run.total_work)
        )
        assert run.ended_at - run.first_started >= run.job.duration - 1e-6
    again = Simulation(trace, SimulatedNodes(3, 4)).run()
    assert metrics.summarize(again) == metrics.summarize(story)


def test_jain() -> None:
    assert metrics.jain_index([1, 1, 1]) == 1.0
    assert metrics.jain_index([1, 0, 0, 0]) == 0.25
    assert metrics.jain_index([]) == 1.0


def test_percentiles() -> None:
    assert metrics.percentile([], 0.5) == 0
    assert [metrics.percentile(list(range(1, 101)), p) for p in (0.5, 0.9, 0.99)] == [50, 90, 99]


def test_the_picture_is_well_formed_and_names_every_project() -> None:
    story = play(ONE_AFTER_THE_OTHER.replace("name: a,", 'name: "a<&>",').replace("project: a,", 'project: "a<&>",'))
    root = ElementTree.fromstring(chart.render_svg(story, "a & b"))
    texts = [t.text for t in root.iter("{http://www.w3.org/2000/svg}text")]
    assert "a<&>" in texts and "a & b" in texts and any("simulated" in (t or "") for t in texts)
    assert "2 GPUs" in texts


def test_slices_keep_the_mean() -> None:
    story = play(ONE_AFTER_THE_OTHER)
    values = chart.slice_means(story.points, 0.0, 150.0, lambda p: p.held[0] / 100)
    assert sum(values) / len(values) == pytest.approx(2.0)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("[]", "must be a mapping"),
        (
            "departments: [{name: d, department: d}]\nprojects: [{name: a}]",
            "departments[0]: a department has no parent",
        ),
        ("projects: [{name: a, department: zz}]", "there is no department 'zz'; known: none"),
        ("projcts: []", "did you mean 'projects'?"),
        ("projects: [{name: a, qota: 1}]", "projects[0]: there is no 'qota'; did you mean 'quota'?"),
        ("projects: []\njobs: []", "needs at least one"),
        ("projects: [{name: a}]\njobs: []", "jobs: a trace needs at least one"),
        ("projects: [{name: a}, {name: a}]", "given twice"),
        ("projects: [{name: a, department: x}]", "there is no department 'x'"),
        ("projects: [{name: a}]\njobs: [{name: j, project: b, duration: 1}]", "there is no project 'b'"),
        ("projects: [{name: a}]\njobs: [{name: j, project: a}]", "duration is missing"),
        ("projects: [{name: a}]\njobs: [{name: j, project: a, duration: soon}]", "'soon' is not a duration"),
        ("projects: [{name: a}]\njobs: [{name: j, project: a, duration: -1}]", "is not a duration"),
        ("projects: [{name: a}]\njobs: [{name: j, project: a, duration: 1, pods: 0}]", "pods must be a number"),
        ("projects: [{name: a}]\njobs: [{name: j, project: a, duration: 1, pods: 2, min: 3}]", "between 1 and 2"),
        ("projects: [{name: a}]\njobs: [{name: j, project: a, duration: 1, fraction: 1.5}]", "between 0.01 and 1"),
        ("projects: [{name: a}]\njobs: [{name: j, project: a, duration: 1, fraction: .nan}]", "fraction must be"),
        ("projects: [{name: a}]\njobs: [{name: j, project: a, duration: 1, fraction: 0.5, gpus: 1}]", "exclude"),
        ("projects: [{name: a}]\njobs: [{name: j, project: a, duration: 1, priority: hgih}]", "no priority 'hgih'"),
        ("projects: [{name: a}]\njobs: [{name: j, project: a, duration: 1, memory: lots}]", "memory: "),
        ("projects: [{name: a}]\njobs: [{name: j, project: a, duration: 1, preemptible: 3}]", "true or false"),
        ("projects: [{name: a, quota: many}]", "quota must be a number"),
    ],
)
def test_traces_that_are_wrong(text: str, sentence: str) -> None:
    with pytest.raises(TraceError) as refused:
        parse_trace(yaml.safe_load(text))
    assert sentence in str(refused.value)


@pytest.mark.parametrize(
    ("argv", "sentence"),
    [
        ([], "say what to simulate"),
        (["--generate", "projects=1.5"], "projects must be a whole number, for example projects=4"),
        (["--generate", "jobs=1", "x.yaml"], "a trace file (x.yaml) and --generate exclude each other"),
        (["--generate", "job=1"], "did you mean 'jobs'?"),
        (["--generate", "jobs=x"], "jobs must be a whole number"),
        (["--generate", "jobs=0"], "jobs must lie between"),
        (["--nodes", "0", "--generate", "jobs=1"], "--nodes must lie between 1"),
        (["--gpus", "-1", "--generate", "jobs=1"], "--gpus must lie between 1"),
        (["--grace", "soon", "--generate", "jobs=1"], "--grace: 'soon' is not a duration"),
        (["/nowhere.yaml"], "/nowhere.yaml cannot be read: No such file"),
        (["--svg", "/nowhere/x.svg", "--generate", "jobs=1"], "/nowhere/x.svg cannot be written"),
    ],
)
def test_lines_that_are_wrong(argv: list[str], sentence: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(argv) == 1
    out, err = capsys.readouterr()
    assert out == "" and err.startswith("simulate: ") and sentence in err and err.count("\n") == 1


def test_through_the_command_line(tmp_path: Path) -> None:
    rowlock = str(Path(sys.executable).parent / "rowlock")
    svg = tmp_path / "t.svg"
    line = [rowlock, "simulate", "examples/scheduler/trace.yaml", "--nodes", "2", "--gpus", "8", "--svg", str(svg)]
    done = subprocess.run([*line, "--json"], capture_output=True, text=True, timeout=200, cwd=REPO)
    assert done.returncode == 0 and done.stderr == "", done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    assert found["jobs"]["completed"] == 22 and found["taken"]["reclaim"] >= 1
    assert found["simulated"].startswith("simulated:")
    ElementTree.parse(svg)


def test_progress_is_shown_to_a_person_only() -> None:
    rowlock = str(Path(sys.executable).parent / "rowlock")
    master, slave = pty.openpty()
    try:
        done = subprocess.run(
            [rowlock, "simulate", "--generate", "jobs=20", "--nodes", "2"],
            stdout=subprocess.PIPE, stderr=slave, timeout=200, cwd=REPO,
        )  # fmt: skip
        os.close(slave)
        shown = os.read(master, 1 << 16).decode()
    finally:
        os.close(master)
    assert done.returncode == 0 and b"20 of 20 completed" in done.stdout
    assert "20/20 jobs" in shown and shown.endswith("\x1b[K")
