"""The runner of the walks finds what is wrong: shown with a pretend kubectl whose answers lie in files."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.evidence import WALKS
from tests.kubectl.__main__ import check, record
from tests.kubectl.normal import text_lines, without
from tests.kubectl.steps import Own, Raw, Result, Step, Walk, difference
from tests.kubectl.variants import Variants
from tests.kubectl.walks import Known

PRETEND = """#!/bin/sh
# The first word names the folder that holds what is answered; what is not there is answered by nothing.
case "$1 $2" in
"get nodes") printf worker-1; exit ;;
"version -o") echo '{"serverVersion": {"gitVersion": "v1"}, "clientVersion": {"gitVersion": "v2"}}'; exit ;;
esac
at=%s/$1
[ -d $at ] || exit 0
cat $at/out; cat $at/err >&2
[ "$1" = hang ] && sleep 60
exit $(cat $at/exit)
"""
ANSWERS: dict[str, tuple[str, str, int]] = {
    "text": ("NAME  AGE\na     5s\n", "", 0),
    "object": ('{"kind": "ConfigMap", "metadata": {"name": "a", "uid": "u-1"}, "data": {"k": "v"}}', "", 0),
    "refused": ("", "Error from server (NotFound): no a\n", 1),
}
STEPS = [
    {"name": "text", "run": "text cm"},
    {"name": "object", "run": "object -o json"},
    {"name": "refused", "run": "refused cm"},
]


@pytest.fixture
def answers(tmp_path: Path) -> Path:
    folder = tmp_path / "answers"
    for name, answer in ANSWERS.items():
        answered(folder, name, *answer)
    program = tmp_path / "kubectl"
    program.write_text(PRETEND % folder)
    program.chmod(0o755)
    (tmp_path / "kubeconfig").write_text("{}")
    return folder


def answered(folder: Path, name: str, out: str, err: str, code: int) -> None:
    (folder / name).mkdir(parents=True, exist_ok=True)
    for part, text in (("out", out), ("err", err), ("exit", str(code))):
        (folder / name / part).write_text(text)


def recorded(answers: Path, steps: list[dict[str, Any]] = STEPS) -> Walk:
    made, broken = record(Walk.read({"walk": "w", "steps": steps}), answers.parent / "kubeconfig", kubectl(answers))
    assert broken == []
    return Walk.read(json.loads(json.dumps(made)))


def kubectl(answers: Path) -> str:
    return str(answers.parent / "kubectl")


def wrong(answers: Path, walk: Walk) -> dict[str, list[str]]:
    return {
        step.name: lines for step, lines, _ in check(walk, answers.parent / "kubeconfig", kubectl(answers)) if lines
    }


def test_what_was_recorded_is_found_again(answers: Path) -> None:
    walk = recorded(answers)
    assert walk.source["recorded"] == {"server": "v1", "kubectl": "v2"}
    assert wrong(answers, walk) == {}


@pytest.mark.parametrize(
    ("name", "answer", "said"),
    [
        ("text", ("NAME  AGE\nb     5s\n", "", 0), "+stdout| b AGE"),
        ("text", ("NAME  AGE\na     5s\nb     5s\n", "", 0), "+stdout| b AGE"),
        ("text", ("NAME  AGE\n", "", 0), "-stdout| a AGE"),
        ("text", ("NAME  AGE\na     5s\n", "Warning: deprecated\n", 0), "+stderr| Warning: deprecated"),
        ("text", ("NAME  AGE\na     5s\n", "", 1), "+exit 1"),
        (
            "object",
            ('{"kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"k": "v"}}', "", 0),
            '-object|   "uid": "UID"',
        ),
        (
            "object",
            ('{"kind": "ConfigMap", "metadata": {"name": "a", "uid": "u-2"}, "data": {"k": "w"}}', "", 0),
            '+object|   "k": "w"',
        ),
        ("object", ("kind: not an object, but text:\n", "", 0), "+stdout| kind: not an object, but text:"),
        ("refused", ("", "Error from server (NotFound): no b\n", 1), "+stderr| Error from server (NotFound): no b"),
        ("refused", ("", "Error from server (NotFound): no a\n", 0), "+exit 0"),
    ],
)
def test_a_changed_answer_is_a_difference(answers: Path, name: str, answer: tuple[str, str, int], said: str) -> None:
    walk = recorded(answers)
    answered(answers, name, *answer)
    found = wrong(answers, walk)
    assert set(found) == {name} and said in found[name]


def test_a_step_without_a_record_does_not_pass(answers: Path) -> None:
    walk = recorded(answers)
    steps = [*walk.steps[:-1], replace(walk.steps[-1], result=None)]
    with pytest.raises(ValueError, match="the step refused of the walk w has no record"):
        wrong(answers, replace(walk, steps=steps))


def test_a_program_that_is_not_there_is_a_difference(answers: Path) -> None:
    walk = recorded(answers, [{"name": "text", "run": "text cm", "pipe": "cat"}])
    step = replace(walk.steps[0], pipe="no-such-program")
    assert any("no-such-program" in line for line in wrong(answers, replace(walk, steps=[step]))["text"])


def test_what_never_comes_is_not_recorded(answers: Path) -> None:
    steps = [{"name": "text", "run": "text cm", "until": "Ready", "within": 0}]
    walk = Walk.read({"walk": "w", "steps": steps})
    made, broken = record(walk, answers.parent / "kubeconfig", kubectl(answers))
    assert broken == ["text"] and "NOT REACHED within 0 s: Ready" in str(made["steps"])


def test_a_command_that_is_ended_has_said_what_it_said(answers: Path) -> None:
    answered(answers, "hang", "ADDED\n", "", 0)
    walk = recorded(answers, [{"name": "hang", "run": "hang", "stop_after": 1}])
    assert walk.steps[0].result == {"exit": "stopped", "stdout": ["ADDED"], "stderr": []}
    assert wrong(answers, walk) == {}


@pytest.mark.parametrize("field", ["untill", "timeout"])
def test_a_word_that_no_step_has_is_refused(field: str) -> None:
    with pytest.raises(ValueError, match=field):
        Step.read({"name": "a", "run": "get", field: 1})


@pytest.mark.parametrize("name", [path.stem for path in sorted(WALKS.glob("*.yaml"))])
def test_a_recorded_walk_has_every_step_of_the_written_one(name: str) -> None:
    written, found = Walk.load(WALKS / f"{name}.yaml"), Walk.load(WALKS / f"{name}.golden.json")
    assert [replace(step, result=None) for step in found.steps] == written.steps
    assert (found.files, found.before, found.after) == (written.files, written.before, written.after)
    assert all(step.result and set(step.result) - {"object"} == set(step.only) for step in found.steps)


# ---------------------------------------------------------------- what counts and what does not


@pytest.mark.parametrize(
    ("line", "normal"),
    [
        ("web   1/1   Running   2 (3m4s ago)   12s", "web 1/1 Running 2 (AGE ago) AGE"),
        ("  indented    kept", "  indented kept"),
        ("cpu: 100m", "cpu: 100m"),
        ("cpu=100m,memory=1", "cpu=100m,memory=1"),
        ("wait 100m", "wait AGE"),
        ("<invalid>", "AGE"),
        ("5s (x3 over 9s)  Normal", "AGE Normal"),
        ("at 2026-01-02T03:04:05Z and 2026-01-02 03:04:05 +0000 UTC", "at TIME and TIME"),
        ("Fri, 02 Jan 2026 03:04:05 +0000", "TIME"),
        ("uid 01234567-89ab-cdef-0123-456789abcdef", "uid UID"),
        ("https://127.0.0.1:6443/api at 10.0.0.7:80 and 10.0.0.8", "SERVER/api at IP and IP"),
        ("image sha256:0123456789abcdef", "image IMAGE-ID"),
        ("containerd://0123456789abcdef", "CONTAINER-ID"),
        ("Resource Version:  123", "Resource Version: N"),
        ("E0102 03:04:05.678901    4711 memcache.go:265] no", "EKLOG memcache.go] no"),
        ("kube-api-access-x7z2q is kube-api-access-elsewhere", "kube-api-access-SUFFIX is kube-api-access-elsewhere"),
        ("walk-bcdfgh/web on worker-1, not worker-11", "walk/web on NODE, not worker-11"),
        ("wrote /tmp/w/here/a/file.yaml", "wrote file.yaml"),
    ],
)
def test_a_line_loses_what_a_run_chooses_and_nothing_else(line: str, normal: str) -> None:
    assert text_lines(line, Own("walk-bcdfgh", "/tmp/w", "worker-1").rules(), []) == [normal]


def normal(raw: Raw, **step: Any) -> Result:
    made = Step.read({"name": "a", "run": "get cm -o yaml", **step})
    return made.normal(raw, ["get", "cm", "-o", "yaml"], Own("walk-b", "/tmp/w", "n"), lambda text: text)


def test_an_object_is_compared_whole_but_for_chosen_values() -> None:
    text = "metadata: {uid: a, generation: 3, managedFields: [1]}\ntime: 2026-01-02T03:04:05Z\nports: [{nodePort: 7}]\n"
    wanted = {"metadata": {"generation": "N", "uid": "UID"}, "ports": [{"nodePort": "PORT"}], "time": "TIME"}
    assert normal(Raw(0, text, "")) == {"exit": 0, "stdout": [], "stderr": [], "object": wanted}
    assert normal(Raw(0, text, ""), ignore=["metadata", "ports/*/nodePort"])["object"] == {
        "ports": [{}],
        "time": "TIME",
    }
    assert normal(Raw(0, "uid: 0\n", ""))["object"] == {"uid": 0}


def test_steps_say_which_lines_count() -> None:
    raw = Raw(0, "b 1\na 2\nc 3\n", "x\n")
    assert normal(raw, unordered=True)["stdout"] == ["a 2", "b 1", "c 3"]
    assert normal(raw, keep=["^[ab]"], drop=["2"])["stdout"] == ["b 1"]
    assert normal(raw, keep=[])["stdout"] == []
    assert normal(raw, normalise=[["^(.) .", r"\1 N"]])["stdout"] == ["b N", "a N", "c N"]
    assert normal(raw, only=["exit", "stderr"]) == {"exit": 0, "stderr": ["x"]}


def test_a_path_is_cut_out_of_every_element() -> None:
    assert without({"a": [{"b": 1, "c": 2}, {"b": 3}]}, ["a", "*", "b"]) == {"a": [{"c": 2}, {}]}
    assert without({"a": {"x": {"b": 1}, "y": 2}}, ["a", "*", "b"]) == {"a": {"x": {}, "y": 2}}
    assert without({"a": 1}, ["b", "c"]) == {"a": 1}


def test_equal_results_have_no_difference_and_unequal_ones_always_have() -> None:
    assert difference({"exit": 0, "stdout": ["a"]}, {"exit": 0, "stdout": ["a"]}) == []
    assert difference({"exit": 1}, {"exit": "1"}) != []
    assert difference({"exit": 0, "stdout": []}, {"exit": 0}) != []


# ---------------------------------------------------------------- listed variants


def step(stdout: list[str], **more: Any) -> Step:
    return Step.read({"name": "s", "run": "get", "result": {"exit": 0, "stdout": stdout, "stderr": []}, **more})


def listed(*choices: dict[str, Any]) -> Variants:
    return Variants.read({"why": "a moment", "choices": choices})


def test_a_variant_allows_its_lines_and_no_others() -> None:
    both = listed({"recorded": ["b"], "or": [["~B\\d"], []]}, {"recorded": ["c"], "or": [["d", "e"]]})
    found = {"exit": 0, "stderr": []}

    def allowed(*lines: str, **other: Any) -> bool:
        return both.allow(step(["a", "b", "c"]), {**found, "stdout": list(lines), **other})

    assert (
        allowed("a", "B1", "c") and allowed("a", "c") and allowed("a", "b", "d", "e") and allowed("a", "B2", "d", "e")
    )
    assert not allowed("a", "B12", "c") and not allowed("a", "b", "d") and not allowed("a", "B1", "c", "c")
    assert not allowed("a", "c", exit=1) and not allowed("a", "c", stderr=["x"])
    assert not allowed("a", "b", "c")  # that is the record itself


def test_a_variant_of_an_object_allows_one_place_to_differ() -> None:
    made = replace(step([]), result={"exit": 0, "stdout": [], "stderr": [], "object": {"a": {"b": 1}, "c": 2}})
    variants = listed({"at": "a/b", "recorded": 1, "or": [3, None]})
    found = {"exit": 0, "stdout": [], "stderr": []}
    assert variants.allow(made, {**found, "object": {"a": {"b": 3}, "c": 2}})
    assert variants.allow(made, {**found, "object": {"a": {}, "c": 2}})
    assert not variants.allow(made, {**found, "object": {"a": {"b": 4}, "c": 2}})
    assert not variants.allow(made, {**found, "object": {"a": {"b": 3}, "c": 1}})


def test_a_variant_that_does_not_fit_its_record_is_refused() -> None:
    for stdout in (["a"], ["b", "b"]):
        with pytest.raises(ValueError, match="should be there once"):
            list(listed({"recorded": ["b"], "or": [["c"]]}).accepted(step(stdout)))
    with pytest.raises(ValueError, match="is not a choice"):
        listed({"recorded": ["b"]})


@pytest.mark.parametrize("name", [path.stem for path in sorted(WALKS.glob("*.yaml"))])
def test_every_known_variant_fits_the_record(name: str) -> None:
    known, steps = Known.of(name), {step.name: step for step in Walk.load(WALKS / f"{name}.golden.json").steps}
    for called, variants in {**known.differs, **known.varies}.items():
        accepted = list(variants.accepted(steps[called]))
        assert variants.why and accepted and steps[called].result not in accepted


def test_what_is_known_to_differ_must_differ_and_only_so() -> None:
    known = Known({"s": listed({"recorded": ["a"], "or": [["b"]]})}, {})
    found = {"exit": 0, "stderr": []}
    assert known.judge(step(["a"]), ["-a", "+b"], {**found, "stdout": ["b"]}) == ""
    assert "take it out of known.json" in known.judge(step(["a"]), [], {**found, "stdout": ["a"]})
    assert "+c" in known.judge(step(["a"]), ["-a", "+c"], {**found, "stdout": ["c"]})
    assert "+c" in Known({}, {}).judge(step(["a"]), ["-a", "+c"], {**found, "stdout": ["c"]})
