"""What programs print becomes curves: by equality against what the program itself knew."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from rowlock.curves.curves import MAX_CURVES, MAX_POINTS, Curve, CurveReader
from rowlock.curves.lines import read_piece

RECORDINGS = Path(__file__).parent / "recordings"
Points = list[tuple[float, float]]


def read(*attempts: Iterable[str]) -> dict[str, Curve]:
    reader = CurveReader()
    for pieces in attempts:
        reader.begin_attempt()
        for piece in pieces:
            reader.push(piece)
    return reader.curves


def points_of(text: str) -> dict[str, Points]:
    """Metric → points of a log, cut as the server cuts it."""
    return {name: curve.points for name, curve in read(re.split("[\n\r\b]+", text)).items()}


def recording(name: str) -> tuple[dict[str, Points], Any]:
    """The curves of a recorded program (`recordings/README.md`), and what it wrote down of itself."""
    log = (RECORDINGS / f"{name}.log").read_bytes().decode()
    return points_of(log), json.loads((RECORDINGS / f"{name}.json").read_text())


def assert_same(points: Points, truth: Iterable[Iterable[float]]) -> None:
    """Programs print three or four digits."""
    expected = [tuple(point) for point in truth]
    assert [x for x, _ in points] == [x for x, _ in expected]
    for (_, y), (_, true) in zip(points, expected, strict=True):
        assert math.isclose(y, true, rel_tol=5e-3), (points, expected)


# ---------------------------------------------------------------- recorded


@pytest.mark.parametrize("name", ["tqdm", "rich"])
def test_a_bar_that_is_written_over_gives_one_point_a_step(name: str) -> None:
    """Log lines are glued to the bars, two epochs follow one another, rich draws what it shows again and again."""
    curves, truth = recording(name)
    found = curves["loss"][1:] if name == "rich" else curves["loss"]  # rich shows the 0 with which the program began
    assert_same(found, truth["loss"])
    if name == "tqdm":
        assert [y for _, y in curves["lr"]] == [0.003] * len(truth["loss"])


def test_a_bar_of_lightning_has_its_steps_and_evaluations() -> None:
    curves, truth = recording("lightning")
    assert_same(curves["train_loss"], truth["train_loss"])
    assert [x for x, _ in curves["val_loss"]] == [5, 10, 15]  # not again at each step until the next one
    assert set(curves) == {"train_loss", "val_loss"}


def test_a_bar_of_keras_ends_each_epoch_with_its_history() -> None:
    curves, truth = recording("keras")
    for name, values in truth.items():
        ends = [(x, y) for x, y in curves[name] if x in (4, 8, 12)]
        assert_same(ends, [(4 * epoch, value) for epoch, value in enumerate(values, 1)])
    assert [x for x, _ in curves["val_loss"]] == [4, 8, 12]


def test_dicts_of_the_trainer_beside_its_bars() -> None:
    curves, history = recording("transformers")
    for name in ("loss", "eval_loss", "learning_rate", "grad_norm", "train_loss"):
        assert_same(curves[name], [(entry["epoch"], entry[name]) for entry in history if name in entry])


# ---------------------------------------------------------------- lines


@pytest.mark.parametrize(
    ("line", "axis", "count", "metrics"),
    [
        ("step=10 loss=0.31", "step", 10, {"loss": 0.31}),
        ("step=10/100 loss=3.1e-05 lr=1E-4\n", "step", 10, {"loss": 3.1e-05, "lr": 1e-4}),
        ('{"step": 3, "train/loss": -0.5, "name": "x"}', "step", 3, {"train/loss": -0.5}),
        ("{'loss': 2.5, 'grad_norm': '1.5', 'epoch': 0.25}", "epoch", 0.25, {"loss": 2.5, "grad_norm": 1.5}),
        ("Epoch [3/10], Step [20/60], Loss: 0.5312", "step", 20, {"Loss": 0.5312}),
        ("2026-01-02 03:04:05 INFO epoch 2 - loss: 0.4 - acc: .75.", "epoch", 2, {"loss": 0.4, "acc": 0.75}),
        ("iter 10: loss 2.3100, time 12.30ms, mfu 1.20%", "iter", 10, {"loss": 2.31}),
        ("step 250: train loss 1.9, val loss 2.05", "step", 250, {"train loss": 1.9, "val loss": 2.05}),
        ("loss: 2.303494  [ 6400/60000]", "step", 6400, {"loss": 2.303494}),
        ("Train Epoch: 1 [640/60000 (1%)]\tLoss: 2.300", "step", 640, {"Loss": 2.3}),
        ("step 3 loss 0.4142", "step", 3, {"loss": 0.4142}),
        ("epoch 1 batch 30 loss 0.4 acc 0.9", "batch", 30, {"loss": 0.4, "acc": 0.9}),
        ("step 10 - loss 0.3 - lr 0.001", "step", 10, {"loss": 0.3, "lr": 0.001}),
        ("Iter 10 loss nan time 12ms", "iter", 10, {"loss": math.nan}),
        ("loss 0.25 at step 12", "step", 12, {"loss": 0.25}),
        ("step 7 loss tensor(0.3142, grad_fn=<MeanBackward0>)", "step", 7, {"loss": 0.3142}),
        ("Step: 10, Loss: tensor(0.3142)", "step", 10, {"Loss": 0.3142}),
        ("step: 10  loss:  8.1376  tps: 3,000  memory: 1.43GiB(1.51%)", "step", 10, {"loss": 8.1376, "tps": 3000}),
        ("[1,  2000] loss: 2.198", "batch", 2000, {"loss": 2.198}),
        (
            "Epoch: [0][  10/5005]\tTime  0.548 ( 1.286)\tLoss 6.9e+00 (6.9e+00)\tAcc@1   0.78 (  0.12)",
            "step",
            10,
            {"Time": 0.548, "Loss": 6.9, "Acc@1": 0.78},
        ),
        (
            " iteration       10/  500000 | consumed samples:          640 | elapsed time per iteration (ms): 2400.1 | lm loss: 1.042E+01 |",
            "iteration",
            10,
            {"consumed samples": 640, "elapsed time per iteration (ms)": 2400.1, "lm loss": 10.42},
        ),
        (
            "step    1/19560 | loss 10.9500 (+nanz)| norm 15.3 (+nanz)| 2000.00 ms |",
            "step",
            1,
            {"loss": 10.95, "norm": 15.3},
        ),
        (
            "| epoch   1 |   200/ 2928 batches | ms/batch 12.3 | loss  7.05 |",
            "batch",
            200,
            {"ms/batch": 12.3, "loss": 7.05},
        ),
        (
            "11/29 05:00:00 - mmengine - INFO - Epoch(train)  [1][  50/7330]  lr: 2.0e-02  loss: 1.43",
            "step",
            50,
            {"lr": 0.02, "loss": 1.43},
        ),
        ("[3]\ttrain-rmse:0.5\tvalidation-rmse:0.6", "iteration", 3, {"train-rmse": 0.5, "validation-rmse": 0.6}),
        (
            "[10]\tvalid_0's binary_logloss: 0.5\ttraining's auc: 0.9",
            "iteration",
            10,
            {"valid_0's binary_logloss": 0.5, "training's auc": 0.9},
        ),
        ("10:\tlearn: 0.6912\ttest: 0.6913\ttotal: 46ms", "iteration", 10, {"learn": 0.6912, "test": 0.6913}),
        ("Validation loss: 0.4321, accuracy: 91.2%", "", 0, {"Validation loss": 0.4321, "Validation accuracy": 91.2}),
        ("train loss 0.25", "", 0, {"train loss": 0.25}),
        ("steps: 10 loss: 2.3112 iter time (s): 0.432", "steps", 10, {"loss": 2.3112}),
        ('| train_inner | {"epoch": 1, "loss": "5.3", "num_updates": "100"}', "num_updates", 100, {"loss": 5.3}),
        ("[default0]:step=1 loss=2", "step", 1, {"loss": 2.0}),
        ("\x1b[32mstep=1\x1b[0m loss=2", "step", 1, {"loss": 2.0}),
    ],
)
def test_lines_of_training_programs_are_read(line: str, axis: str, count: float, metrics: dict[str, float]) -> None:
    (found,) = read_piece(line)
    assert (found.axis, found.count, str(found.metrics)) == (
        axis,
        count,
        str(_floats(metrics)),
    )  # nan is not equal to nan


def _floats(metrics: dict[str, float]) -> dict[str, float]:
    return {name: float(value) for name, value in metrics.items()}


@pytest.mark.parametrize(
    "line",
    [
        "step 3 saved 12 files to /tmp/1",
        "epoch 2 evaluating 64 batches",
        "epoch 1 test 5 of 10",
        "step 4 done 50%",
        "wandb:       loss 0.25",
        "11/29 05:00:00 - main - INFO - size: 3",
        "loss=0.5",
        "step=10",
        "rank=0 world_size=2 step=1",
        "step=3 at=12:30:05",
        "step=1 speed=3.2it/s took=5ms done=50% version=1.2.3",
        "step=" + "9" * 400 + " loss=1",
        "lr=0.003 batch_size=32",
        "",
    ],
)
def test_other_lines_are_no_points(line: str) -> None:
    assert not read([line])


def test_a_number_that_is_none_is_kept_as_what_it_is() -> None:
    (found,) = read_piece("step=5 loss=nan scale=inf")
    assert math.isnan(found.metrics["loss"]) and math.isinf(found.metrics["scale"])


def test_an_evaluation_stands_at_the_step_before_it() -> None:
    log = [
        "step=10 loss=3",
        "val_loss=2.5",
        "saved 12 files, size=4096",
        "step=20 loss=2",
        "validation: loss=1.5",
        "step=30 loss=1",
    ]
    assert {name: curve.points for name, curve in read(log).items()} == {
        "loss": [(10, 3), (20, 2), (30, 1)],
        "val_loss": [(10, 2.5)],
        "validation loss": [(20, 1.5)],
    }


def test_an_attempt_takes_the_place_of_what_it_does_again() -> None:
    first = [f"step={n} loss={n}" for n in range(1, 8)]
    second = [f"step={n} loss={n * 10}" for n in range(5, 9)]
    curve = read(first, second)["loss"]
    assert curve.points == [(1, 1), (2, 2), (3, 3), (4, 4), (5, 50), (6, 60), (7, 70), (8, 80)]


@pytest.mark.parametrize("form", ["epoch={0} step={1} loss=1", "Epoch [{0}/3], Step [{1}/30], loss: 1"])
def test_steps_that_begin_again_in_each_epoch_go_on(form: str) -> None:
    lines = [form.format(epoch, step) for epoch in range(3) for step in (10, 20, 30)]
    assert [x for x, _ in read(lines)["loss"].points] == [10, 20, 30, 40, 50, 60, 70, 80, 90]


def test_an_epoch_whose_last_step_is_not_printed_still_has_its_length() -> None:
    lines = [f"Epoch [{epoch}/2], Step [{step}/50], loss: 1" for epoch in (1, 2) for step in (20, 40)]
    assert [x for x, _ in read(lines)["loss"].points] == [20, 40, 70, 90]


def test_lines_beside_a_bar_of_each_epoch_count_for_themselves() -> None:
    log = [
        f" {n * 10}%|##| {n}/10 [00:01<00:01, loss={20 - n - 10 * e}]step={n + 10 * e} lr=0.1"
        for e in (0, 1)
        for n in range(10)
    ]
    curves = read(log)
    assert curves["loss"].points == [(n, 20 - n) for n in range(20)]
    assert curves["lr"].points == [(n, 0.1) for n in range(20)]


def test_an_endless_program_costs_a_bounded_memory() -> None:
    curve = read(f"step={n} loss={n}" for n in range(3 * MAX_POINTS))["loss"]
    assert MAX_POINTS // 2 <= len(curve.points) <= MAX_POINTS
    assert curve.points[-1][0] > 2.9 * MAX_POINTS
    assert len(read([f"step=1 {' '.join(f'm{n}=1' for n in range(400))}"])) == MAX_CURVES
