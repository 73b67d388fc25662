"""Rules that are asked by an index allow what they allow one by one; what would take too long to compare is refused."""

from __future__ import annotations

from random import Random

import pytest

from rowlock.authorization.authorizer import Attributes
from rowlock.authorization.policy_rules import CompiledRule, RuleIndex, TooManyRules, uncovered_rules
from rowlock.objects import Object

VERBS, GROUPS, RESOURCES = ("get", "list", "*"), ("", "apps", "*"), ("pods", "pods/log", "*/log", "jobs", "*")
NAMES, URLS = ("a", "b"), ("/healthz", "/api/*", "*")


def drawn(dice: Random) -> Object:
    def some(texts: tuple[str, ...]) -> list[str]:
        return dice.sample(texts, dice.randint(1, 2))

    if dice.random() < 0.15:
        return {"verbs": some(VERBS), "nonResourceURLs": some(URLS)}
    rule = {"verbs": some(VERBS), "apiGroups": some(GROUPS), "resources": some(RESOURCES)}
    return rule | ({"resourceNames": some(NAMES)} if dice.random() < 0.4 else {})


def test_an_index_allows_what_its_rules_allow() -> None:
    dice, allowed = Random("rules"), 0
    for _ in range(2_000):
        rules = [drawn(dice) for _ in range(dice.choice((0, 1, 5, 17, 40)))]
        if dice.random() < 0.15:
            question = Attributes(dice.choice(("get", "post")), path=dice.choice(("/healthz", "/api/v1", "/x")))
        else:
            resource, _, subresource = dice.choice(("pods", "pods/log", "jobs", "jobs/log", "x")).partition("/")
            question = Attributes(
                dice.choice(("get", "watch")),
                dice.choice(("", "y")),
                resource,
                subresource,
                "ns",
                dice.choice(("", "a", "c")),
            )
        wanted = any(CompiledRule(rule).allows(question) for rule in rules)
        assert RuleIndex(rules).allows(question) == wanted, (rules, question)
        allowed += wanted
    assert allowed > 200


@pytest.mark.parametrize("field", ["verbs", "apiGroups", "resources", "resourceNames"])
def test_of_many_rules_those_are_asked_that_name_what_is_asked(field: str) -> None:
    one = {"verbs": ["get"], "apiGroups": [""], "resources": ["pods"], "resourceNames": ["a"]}
    index = RuleIndex([{**one, field: [f"x{n}"]} for n in range(5_000)] + [one])
    assert len(index.candidates(Attributes("get", "", "pods", name="a"))) == 1


def test_what_is_held_is_covered() -> None:
    held = [{"verbs": ["get", "list"], "apiGroups": ["", "apps"], "resources": ["pods", "*/log"]}]
    granted = [{"verbs": ["list", "watch"], "apiGroups": ["apps"], "resources": ["pods", "jobs/log", "pods/"]}]
    assert [(part["verbs"][0], part["resources"][0]) for part in uncovered_rules(held, granted)] == [
        ("watch", "pods"),
        ("watch", "jobs/log"),
        ("list", "pods/"),
        ("watch", "pods/"),
    ]


def test_a_product_of_thousands_is_not_compared() -> None:
    many = [f"x{n}" for n in range(3_000)]
    with pytest.raises(TooManyRules):
        uncovered_rules([], [{"verbs": many, "apiGroups": many, "resources": many}])
    pods = {"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}
    with pytest.raises(TooManyRules):
        uncovered_rules([pods] * 50, [{**pods, "resourceNames": many}])
