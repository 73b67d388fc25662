"""Curves become drawings that say the same in a pipe and in a file."""

from __future__ import annotations

import math
import xml.etree.ElementTree as ElementTree

import pytest

from rowlock.cli.curves.command import to_svg
from rowlock.cli.curves.terminal import ROWS, draw_metric, tell_apart


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


@pytest.mark.parametrize(
    ("values", "marks"),
    [
        ([0.003, 0.001525, 4.9e-05], ["0.003", "0.001525", "4.9e-05"]),
        ([123495.0, 123475.5, 123456.0], ["123495", "123476", "123456"]),
        ([1.00002, 1.00001, 1.0], ["1.00002", "1.00001", "1"]),
        ([0.003], ["0.003"]),
        ([2e-07, 1e-07], ["2e-07", "1e-07"]),
    ],
)
def test_the_marks_of_an_axis_are_told_apart(values: list[float], marks: list[str]) -> None:
    assert tell_apart(values) == marks
    if len(values) > 1:
        points = [(float(n), value) for n, value in enumerate(values)]
        rows = list(draw_metric("lr", "step", [("r", points)], 60, braille=True))
        assert (rows[1].split()[0], rows[ROWS].split()[0]) == (marks[0], marks[-1])
        assert all(f">{mark}</text>" in to_svg([("lr", "step", [("r", points)])]) for mark in (marks[0], marks[-1]))


def test_a_value_that_does_not_change_is_written_once_where_its_line_is() -> None:
    points = [(float(n), 0.003) for n in range(9)]
    rows = list(draw_metric("lr", "step", [("r", points)], 60, braille=True))[1 : ROWS + 1]
    assert [row.split()[0] for row in rows if "0.003" in row] == ["0.003"]
    assert "⣀" in next(row for row in rows if "0.003" in row) or "⠉" in next(row for row in rows if "0.003" in row)
    assert to_svg([("lr", "step", [("r", points)])]).count(">0.003</text>") == 1
