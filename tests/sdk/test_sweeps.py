"""Sweeps from Python: what is sent, and a sweep of a function and of a command on a real embedded cluster."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.end_to_end.cluster import Cluster, lent

import rowlock
from rowlock.runtime.sweep_call import SweepCall, read_value
from rowlock.sdk.sweep_request import SweepSubmit, sweep_request


def request(program: Any, space: Any, *, kwargs: Any = None, **fields: Any) -> SweepSubmit:
    return sweep_request(
        program, space, name="tune", search={"search": None, "maxParallel": 2}, args=(), kwargs=kwargs, fields=fields
    )


def train(lr: float, *, depth: int = 1, label: str = "") -> list[object]:
    """What each run of the sweep below returns."""
    print(f"step=1 val_loss={lr + depth}")
    return [lr, depth, label]


def test_a_sweep_of_a_command_is_what_the_command_line_sends() -> None:
    body = request(
        "python train.py {lr}", {"lr": (0.1, 1e-4), "seed": range(1, 3), "x": "uniform(0,1)"}, nnodes=2
    ).body("team-a")
    workload = body.pop("workload")
    assert body == {
        "name": "tune",
        "parameters": {"lr": [0.1, 1e-4], "seed": [1, 2], "x": "uniform(0,1)"},
        "maxParallel": 2,
    }
    assert (workload["projectId"], workload["spec"]["command"]) == ("team-a", ["python", "train.py", "{lr}"])
    assert workload["spec"]["numWorkers"] == 1 and "name" not in workload


def test_a_sweep_without_a_name_gets_one_of_its_own() -> None:
    one, other = (
        sweep_request(train, {"lr": [1]}, name="", search={}, args=(), kwargs=None, fields={}).name for _ in range(2)
    )
    assert one.startswith("train-") and one != other


@pytest.mark.parametrize(
    ("space", "kwargs", "sentence"),
    [
        ({"lr": [object()]}, None, "the parameter lr has the value <object"),
        ({"lr": [float("nan")]}, None, "the parameter lr has the value nan"),
        ({"lr": {"min": 1}}, None, "the parameter lr has the value"),
        ({"lr": [1], "width": [2]}, None, "function train cannot be called with the parameters lr, width: .*'width'"),
        ({"depth": [1]}, None, "missing a required argument: 'lr'"),
        ({"lr": [1]}, {"lr": 2}, "lr is a parameter of the sweep and in kwargs"),
    ],
)
def test_what_cannot_be_swept_is_refused_before_anything_is_sent(space: Any, kwargs: Any, sentence: str) -> None:
    with pytest.raises(rowlock.ClientError, match=sentence):
        request(train, space, kwargs=kwargs)


def test_names_of_runs_are_the_servers() -> None:
    with pytest.raises(TypeError, match="name_is_prefix"):
        request("true", {"lr": [1]}, name_is_prefix=True)
    with pytest.raises(TypeError, match="args and kwargs are for a function"):
        request("true", {"lr": [1]}, kwargs={"a": 1})


def test_a_run_gets_the_values_that_the_program_gave(monkeypatch: pytest.MonkeyPatch) -> None:
    def returned(**values: Any) -> dict[str, Any]:
        return values

    names = {name: f"ROWLOCK_SWEEP_{name.upper()}" for name in ("lr", "fast", "word", "drawn")}
    call = SweepCall(returned, names, {"lr": {"0.1": 0.1, "1": 1.0}, "fast": {"true": True}, "word": {"1": "1"}})
    for name, text in (("lr", "1"), ("fast", "true"), ("word", "1"), ("drawn", "0.00123")):
        monkeypatch.setenv(names[name], text)
    assert repr(call()) == repr({"lr": 1.0, "fast": True, "word": "1", "drawn": 0.00123})
    assert [read_value(text) for text in ("7", "1e-4", "adam")] == [7, 1e-4, "adam"]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with lent(tmp_path_factory.mktemp("sweeps")) as made:
        made.up()
        yield made


@pytest.mark.timeout(240)
def test_a_function_is_swept_and_the_best_run_is_found(cluster: Cluster) -> None:
    with rowlock.Client(data_dir=cluster.data) as client:
        space = {"lr": [0.5, 0.25], "depth": "1..2"}
        sweep = client.sweep(train, space, name="tune", max_parallel=2, kwargs={"label": "x"})
        assert (sweep.name, sweep.sweep.total, sweep.sweep.phase) == ("tune", 4, "Running")
        assert (sweep.wait(timeout=180).phase, sweep.sweep.completed) == ("Completed", 4)
        best = sweep.best("val_loss")
        assert (best.name, best.parameters, best.best) == ("tune-2", {"lr": "0.25", "depth": "1"}, 1.25)
        assert best.command[-2:] == ["lr=0.25", "depth=1"]
        assert client.job(best.name).results(timeout=200) == [[0.25, 1, "x"]]
        assert sweep.best("val_loss", maximize=True).name == "tune-1"
        row = {
            "name": "tune-2",
            "phase": "Completed",
            "parameters.lr": "0.25",
            "parameters.depth": "1",
            "best": 1.25,
            "last": 1.25,
        }
        assert sweep.table("val_loss")[0] == row
        with pytest.raises(rowlock.ClientError, match="no run of tune has a number for the metric loss"):
            sweep.best("loss")
        with pytest.raises(rowlock.ClientError, match="there is no sweep tuna in project default"):
            client.find_sweep("tuna")
        with pytest.raises(rowlock.RequestRefused, match="is for a random search"):
            client.sweep("true", {"lr": [1]}, seed=3)
        sweep.delete()


@pytest.mark.timeout(240)
def test_a_sweep_is_stopped_and_resumed_with_an_event_loop(cluster: Cluster, tmp_path: Path) -> None:
    gate = tmp_path / "gate"

    async def play() -> list[str]:
        async with rowlock.AsyncClient(data_dir=cluster.data) as client:
            command = ["sh", "-c", f"while [ ! -e {gate} ]; do sleep 0.1; done; echo {{x}}"]
            sweep = await client.sweep(command, {"x": "1..2"}, name="gated", max_parallel=1)
            while (await sweep.refresh()).begun == 0:
                await asyncio.sleep(0.05)
            await sweep.stop()
            with pytest.raises(TimeoutError, match=r"gated is Stopped after 0\.05 s: 1 of 2 runs begun, 1 unfinished"):
                await sweep.wait(timeout=0.05)
            gate.touch()
            assert ((await sweep.wait(timeout=200)).phase, sweep.sweep.completed) == ("Stopped", 1)
            assert [info.phase for info in await client.sweeps("default") if info.name == "gated"] == ["Stopped"]
            await sweep.resume()
            sweep = await client.find_sweep("gated")
            assert (await sweep.wait(timeout=200)).phase == "Completed"
            return [run.phase for run in await sweep.runs()]

    assert asyncio.run(play()) == ["Completed", "Completed"]
