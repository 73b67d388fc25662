"""`rules.txt`: every row can be read, names a field of its type and checks that there are; and what rows mean."""

from __future__ import annotations

import contextlib
import random
import re
import time
from importlib import resources
from typing import Any

import pytest

from rowlock import kinds, selectors
from rowlock.apiserver.validation import objects, rules
from rowlock.apiserver.validation.rules import Scope, check_struct, rule_names
from rowlock.documents import field_errors
from rowlock.errors import BadRequest

WORDS = re.findall(r"\w+", resources.files("rowlock.apiserver.validation").joinpath("rules.txt").read_text("utf-8"))


@pytest.mark.parametrize("name", rule_names())
def test_rows_name_fields_of_their_type_and_checks_that_there_are(name: str) -> None:
    assert len(rules.rows(name).all) == len(rule_names()[name]) > 0


def test_every_function_that_is_a_word_is_in_the_table() -> None:
    assert [word for word in rules._CHECKS if word not in WORDS] == []


def pod_fields(spec: dict[str, Any]) -> list[str]:
    pod = {"metadata": {"name": "p"}, "spec": {"restartPolicy": "Always", "dnsPolicy": "Default", **spec}}
    return [cause.field for cause in objects.object_causes(kinds.POD, pod)]


GOOD = {"name": "c", "image": "x", "imagePullPolicy": "Always", "terminationMessagePolicy": "File"}


def test_what_was_made_to_be_slow_is_not() -> None:
    """A pattern that gives back what it took costs the square of it: one pod held the server for hours, one selector for a minute."""
    began, path = time.process_time(), "['" * 400_000
    env = [{"name": "A", "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": path}}}]
    assert pod_fields({"containers": [{**GOOD, "env": env}]}) == [
        "spec.containers[0].env[0].valueFrom.fieldRef.fieldPath"
    ]
    with pytest.raises(BadRequest):
        selectors.parse_labels("a" + " " * 60_000 + "b")
    assert time.process_time() - began < 2


@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("metadata.labels['a']", ""),
        ("metadata.annotations['a['b']", "spec.containers[0].env[0].valueFrom.fieldRef"),
        ("metadata.name['a']", "spec.containers[0].env[0].valueFrom.fieldRef.fieldPath"),
        ("['a']", "spec.containers[0].env[0].valueFrom.fieldRef.fieldPath"),
        ("metadata.labels[']", "spec.containers[0].env[0].valueFrom.fieldRef.fieldPath"),
    ],
)
def test_a_path_with_a_key(path: str, why: str) -> None:
    env = [{"name": "A", "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": path}}}]
    assert pod_fields({"containers": [{**GOOD, "env": env}]}) == ([why] if why else [])


def test_a_path_may_leave_out_the_index_or_the_field() -> None:
    mounts = [{"name": "v", "mountPath": "/a", "subPath": "/x", "mountPropagation": "x"}]
    volume = {"name": "v", "projected": {"sources": [{"serviceAccountToken": {}}, {"secret": {"items": [{}]}}]}}
    assert pod_fields({"volumes": [volume], "containers": [{**GOOD, "volumeMounts": mounts}]}) == [
        "spec.volumes[0].projected.path",
        "spec.volumes[0].projected.sources[1].secret.name",
        "spec.volumes[0].projected.sources[1].secret.items[0].key",
        "spec.volumes[0].projected.sources[1].secret.items[0].path",
        "spec.containers[0].volumeMounts[0].name",
        "spec.containers[0].volumeMounts.subPath",
        "spec.containers[0].volumeMounts.mountPropagation",
    ]


def test_siblings_are_told_apart_in_both_lists_of_containers() -> None:
    ports = [{"containerPort": 1, "hostPort": 1, "protocol": "TCP"}]
    assert pod_fields(
        {"containers": [{**GOOD, "ports": ports}, {**GOOD, "ports": ports}], "initContainers": [GOOD]}
    ) == [
        "spec.containers[1].name",
        "spec.containers[1].ports[0].hostPort",
        "spec.initContainers[0].name",
    ]


def test_a_pair_of_key_and_action_is_reported_where_another_follows() -> None:
    """Three times the same are two errors, as a real server has it, each among the others of its constraint."""
    spread = {"maxSkew": 1, "topologyKey": "a", "whenUnsatisfiable": "DoNotSchedule", "nodeTaintsPolicy": "x"}
    path = "spec.topologySpreadConstraints[{}].{}"
    pair, policy = "{topologyKey, whenUnsatisfiable}", "nodeTaintsPolicy"
    assert pod_fields({"containers": [GOOD], "topologySpreadConstraints": [spread] * 3}) == [
        path.format(index, name) for index, name in ((0, pair), (0, policy), (1, pair), (1, policy), (2, policy))
    ]


def test_a_domain_of_dots_alone_is_none() -> None:
    searches = {"dnsConfig": {"searches": [".", "..", "", "a.", "_a.b"]}}
    assert pod_fields({"containers": [GOOD], **searches}) == [
        "spec.dnsConfig.searches[1]",
        "spec.dnsConfig.searches[2]",
    ]


def test_two_functions_of_one_name_are_refused() -> None:
    def toleration(value: Any, scope: Scope) -> list[Any]:
        return [value, scope]

    with pytest.raises(ValueError, match="two rules are called toleration"):
        rules.rule(toleration)


@pytest.mark.parametrize(
    "line", ['name required"', "name > ", "colour required", "name unheard_of", "ports rows:unheard_of"]
)
def test_a_row_that_means_nothing_is_refused(line: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(rule_names(), "Container wrong", [line])
    with pytest.raises((ValueError, KeyError)):
        check_struct("Container wrong", {"name": "x"}, None)


@pytest.mark.parametrize("seed", range(3))
def test_many_names_at_once_are_judged_as_one_by_one(seed: int) -> None:
    """The quick way says yes only to what the slow way finds nothing in, and says it to what clients write."""
    dice = random.Random(seed)
    letters = ["a", "Z", "0", "-", "_", ".", "/", "..", "\n", "é", "", "x" * 62, "y" * 254]
    for _ in range(20_000):
        name = "".join(dice.choice(letters) for _ in range(dice.randint(0, 6)))
        assert field_errors.are_label_keys([name]) == (not field_errors.label_key_problems(name)), name
        assert field_errors.are_label_values([name]) == (not field_errors.label_value_problems(name)), name
        assert field_errors.are_config_keys([name]) == (not field_errors.config_key_problems(name)), name
    meta = {"name": "x", "namespace": "y", "finalizers": [f"a.b/n-{n}" for n in range(100)]}
    assert objects.meta_causes(kinds.CONFIG_MAP, {"metadata": meta}) == []
    for wrong in ("none", "a//b", "A/b", ""):
        causes = objects.meta_causes(
            kinds.CONFIG_MAP, {"metadata": {**meta, "finalizers": [*meta["finalizers"], wrong]}}
        )
        alone = objects.meta_causes(kinds.CONFIG_MAP, {"metadata": {**meta, "finalizers": [wrong]}})
        assert [c.message for c in causes] == [c.message for c in alone] != []


@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    "text", ["metadata.name=x{}y", "metadata.name{}=y", "{}=y", "metadata.name=x{}", "metadata.name{}", "{}"]
)
def test_spaces_in_a_field_selector_cost_their_number(text: str) -> None:
    """A value with 60,000 spaces in it held the loop for twenty seconds."""
    with contextlib.suppress(BadRequest):
        selectors.parse_fields(text.format(" " * 1_000_000))
    assert selectors.parse_fields(" a = b c  ").terms[0].values == frozenset({"b c"})
