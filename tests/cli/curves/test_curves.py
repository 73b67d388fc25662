"""Lines of programs become curves, and curves become drawings that say the same in a pipe and in a file."""

from __future__ import annotations

import math
import xml.etree.ElementTree as ElementTree

import pytest

from rowlock.cli.curves.lines import MAX_CURVES, MAX_POINTS, parse_line, read_curves
from rowlock.cli.curves.svg import to_svg
from rowlock.cli.curves.terminal import ROWS, draw_metric


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("step=10 loss=0.31", ("step", 10, {"loss": 0.31})),
        ("step=10/100 loss=3.1e-05 lr=1E-4\n", ("step", 10, {"loss": 3.1e-05, "lr": 1e-4})),
        ('{"step": 3, "train/loss": -0.5, "name": "x"}', ("step", 3, {"train/loss": -0.5})),
        ("{'loss': 2.5, 'grad_norm': '1.5', 'epoch': 0.25}", ("epoch", 0.25, {"loss": 2.5, "grad_norm": 1.5})),
        ("Epoch [3/10], Step [20/60], Loss: 0.5312", ("step", 20, {"Loss": 0.5312})),
        ("2026-01-02 03:04:05 INFO epoch 2 - loss: 0.4 - acc: .75.", ("epoch", 2, {"loss": 0.4, "acc": 0.75})),
    ],
)
def test_lines_of_training_programs_are_read(line: str, expected: object) -> None:
    assert parse_line(line) == expected


@pytest.mark.parametrize(
    "line",
    [
        "loss=0.5",
        "step=10",
        "rank=0 world_size=2 step=1",
        "step=3 at=12:30:05",
        "step=1 speed=3.2it/s took=5ms done=50% version=1.2.3",
        "step=" + "9" * 400 + " loss=1",
        "",
    ],
)
def test_other_lines_are_no_points(line: str) -> None:
    assert parse_line(line) is None


def test_a_number_that_is_none_is_kept_as_what_it_is() -> None:
    found = parse_line("step=5 loss=nan scale=inf")
    assert found is not None and math.isnan(found[2]["loss"]) and math.isinf(found[2]["scale"])


def test_an_attempt_takes_the_place_of_what_it_does_again() -> None:
    first = [f"step={n} loss={n}" for n in range(1, 8)]
    second = [f"step={n} loss={n * 10}" for n in range(5, 9)]
    curve = read_curves([first, second])["loss"]
    assert curve.points == [(1, 1), (2, 2), (3, 3), (4, 4), (5, 50), (6, 60), (7, 70), (8, 80)]


def test_steps_that_begin_again_in_each_epoch_go_on() -> None:
    lines = [f"epoch={epoch} step={step} loss=1" for epoch in range(3) for step in (10, 20, 30)]
    assert [x for x, _ in read_curves([lines])["loss"].points] == [10, 20, 30, 40, 50, 60, 70, 80, 90]


def test_an_endless_program_costs_a_bounded_memory() -> None:
    lines = (f"step={n} loss={n}" for n in range(3 * MAX_POINTS))
    curve = read_curves([lines])["loss"]
    assert MAX_POINTS // 2 <= len(curve.points) <= MAX_POINTS
    assert curve.points[-1][0] > 2.9 * MAX_POINTS
    names = " ".join(f"m{n}=1" for n in range(400))
    assert len(read_curves([[f"step=1 {names}"]])) == MAX_CURVES


def test_one_run_is_drawn_where_its_values_are() -> None:
    points = [(float(n), float(n)) for n in range(50)]
    title, *rows, axis, said = draw_metric("loss", "step", [("train", points)], 60, braille=True)
    assert title == "loss" and len(rows) == ROWS
    assert rows[0].split()[0] == "49" and rows[-1].split()[0] == "0"
    assert len(rows[0]) > len(rows[ROWS // 2]) > len(rows[-1])  # it rises to the right
    assert axis.split() == ["0", "step", "49"]
    assert said == "  train: last 49, least 0 at 0, greatest 49 at 49"
    assert all(len(row) <= 60 for row in rows)


def test_several_runs_are_told_apart_without_colour() -> None:
    up, down = [(0.0, 0.0), (9.0, 1.0)], [(0.0, 1.0), (9.0, 0.0)]
    lines = list(draw_metric("loss", "step", [("one", up), ("two", down)], 40, braille=True))
    assert lines[-2].startswith("  a  one: ") and lines[-1].startswith("  b  two: ")
    assert "\n".join(lines).isascii() and lines[1].rstrip().endswith("a") and lines[ROWS].rstrip().endswith("b")


def test_a_curve_that_left_the_numbers_says_where() -> None:
    points = [(1.0, 2.0), (2.0, math.nan), (3.0, math.nan)]
    assert list(draw_metric("loss", "step", [("r", points)], 60, braille=True))[-1].endswith("; nan at 2")
    assert list(draw_metric("loss", "step", [("r", points[1:])], 60, braille=True)) == [
        "loss",
        "  r: no finite value, nan at 2",
    ]


@pytest.mark.parametrize("values", [[1.0], [1.0, 1.0], [-1e308, 1e308], [math.inf, 1.0]])
def test_odd_curves_are_drawn(values: list[float]) -> None:
    points = [(float(n), value) for n, value in enumerate(values)]
    assert len(list(draw_metric("m", "step", [("r", points)], 20, braille=True))) == ROWS + 3
    ElementTree.fromstring(to_svg([("m", "step", [("r", points)])]))


def test_the_file_is_an_image_whatever_names_hold() -> None:
    text = to_svg([('a<b>&"', "step", [("<script>", [(0.0, 1.0), (1.0, math.nan), (2.0, 3.0), (3.0, 2.0)])])])
    root = ElementTree.fromstring(text)
    name = "{http://www.w3.org/2000/svg}"
    assert next(e.text for e in root.iter(f"{name}text")) == 'a<b>&"'
    assert not list(root.iter(f"{name}script"))
    assert len(list(root.iter(f"{name}polyline"))) == 2  # the gap
