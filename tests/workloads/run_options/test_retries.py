"""`--retry-on` and `--never-retry-on`: how rules are read, what they match, and what they decide."""

from __future__ import annotations

import json
import random
import re
import time
from typing import Any

import pytest

from rowlock.errors import BadRequest
from rowlock.training.model import REQUEST_ANNOTATION
from rowlock.workloads.body_fields import BodyErrors, Fields
from rowlock.workloads.phase import phase_and_message
from rowlock.workloads.run_options.retries import (
    DECIDED_ANNOTATION,
    NEVER_ANNOTATION,
    RETRY_ANNOTATION,
    Decided,
    FailureFacts,
    RetryRule,
    RetryRules,
    decide,
    decided_of,
    decision_patch,
    log_matches,
    parse_retries,
    parse_rule,
    retry_annotations,
    rules_of,
)

NOTHING = Decided()


def failure(*causes: str, code: int = 1, at: float = 100.0, log: str = "") -> FailureFacts:
    return FailureFacts(frozenset(causes), code, at, log)


def rules(retry: str = "", never: str = "") -> RetryRules:
    return RetryRules(
        tuple(parse_rule(text, counts=True) for text in retry.split()),
        tuple(parse_rule(text, counts=False) for text in never.split()),
    )


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("oom", RetryRule("oom", "oom")),
        ("oom:5", RetryRule("oom:5", "oom", "", 5)),
        ("exit:17", RetryRule("exit:17", "exit", "17")),
        ("exit:17:5", RetryRule("exit:17:5", "exit", "17", 5)),
        ("log:CUDA*error", RetryRule("log:CUDA*error", "log", "CUDA*error")),
        ("log:port: in use", RetryRule("log:port: in use", "log", "port: in use")),
        ("log:port:7:3", RetryRule("log:port:7:3", "log", "port:7", 3)),
    ],
)
def test_a_rule_is_a_cause_and_a_number(text: str, rule: RetryRule) -> None:
    assert parse_rule(text, counts=True) == rule


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("oon", "must be one of oom, nccl, preempted, node, import-error, exit:N, log:PATTERN, but is 'oon'. Did you mean \"oom\"?"),
        ("", "must be one of oom"),
        ("oom:0", "may retry 1 to 100 times, but is 'oom:0'"),
        ("oom:many", "may retry 1 to 100 times"),
        ("exit:0", "needs an exit code from 1 to 255"),
        ("exit:300", "needs an exit code from 1 to 255"),
        ("exit", "needs an exit code from 1 to 255"),
        ("exit:١", "needs an exit code from 1 to 255"),
        ("log:", "needs a text of the log"),
        ("log:***", "needs a text of the log"),
        ("log:" + "x" * 300, "has 304 characters; 200 are allowed"),
    ],
)  # fmt: skip
def test_what_is_no_rule_is_refused(text: str, sentence: str) -> None:
    with pytest.raises(ValueError) as refused:
        parse_rule(text, counts=True)
    assert sentence in str(refused.value)


def test_what_never_retries_has_no_number() -> None:
    with pytest.raises(ValueError, match="never retries, so it has no number"):
        parse_rule("oom:3", counts=False)
    assert parse_rule("log:port:7", counts=False).value == "port:7"
    with pytest.raises(ValueError, match="exit code"):
        parse_rule("exit:17:3", counts=False)


@pytest.mark.parametrize("value", ["oom", [1], {"oom": 3}, ["oom"] * 21])
def test_a_request_has_lists_of_rules(value: Any) -> None:
    errors = BodyErrors()
    parse_retries(Fields("spec", {"retryOn": value}, errors))
    with pytest.raises(BadRequest, match=r"spec\.retryOn: must be a list of no more than 20 causes"):
        errors.raise_if_any()


def test_each_bad_rule_of_a_request_is_named() -> None:
    errors = BodyErrors()
    parse_retries(Fields("spec", {"retryOn": ["oom", "oon"], "neverRetryOn": ["exit:0"]}, errors))
    assert [cause.field for cause in errors.causes] == ["spec.retryOn", "spec.neverRetryOn"]


def test_a_pattern_is_found_in_one_line_in_order() -> None:
    assert log_matches("CUDA*error", "RuntimeError: CUDA driver error 3")
    assert not log_matches("error*CUDA", "RuntimeError: CUDA driver error 3")
    assert not log_matches("CUDA*error", "CUDA\nerror"), "of two lines"
    assert not log_matches("CUDA\nerror", "CUDA\nerror")
    assert log_matches("*CUDA*error*", "CUDA\nerror\nCUDA error")
    assert not log_matches("[a-z]+", "abc"), "it is no regular expression"


def test_patterns_are_found_as_a_search_of_each_line_finds_them() -> None:
    dice = random.Random(7)
    for _ in range(3000):
        lines = ["".join(dice.choices("ab", k=dice.randrange(7))) for _ in range(dice.randrange(6))]
        parts = ["".join(dice.choices("ab", k=dice.randrange(3))) for _ in range(dice.randrange(1, 4))]
        search = re.compile(".*".join(parts)).search
        expected = any(parts) and any(search(line) for line in lines)
        assert log_matches("*".join(parts), "\n".join(lines)) == bool(expected), (parts, lines)


@pytest.mark.parametrize(
    "pattern", ["a*" * 90 + "b", "a" * 96 + "ba", "a" * 47 + "ba*x", "a" * 90 + "*" + "a" * 96 + "ba", "ab" * 48 + "aa"]
)
def test_no_pattern_takes_long(pattern: str) -> None:
    """With a search of each line, 20 of the second one took 2.7 s."""
    log = "\n".join(["a" * 4096] * 256)
    began = time.thread_time()
    for _ in range(20):
        log_matches(pattern, log)
    assert time.thread_time() - began < 1.2


def test_never_goes_before_retry() -> None:
    decided = decide(rules("oom nccl", "exit:17"), failure("oom", code=17), NOTHING)
    assert decided.stops and decided.sentence == "It is not retried: --never-retry-on exit:17."


def test_each_rule_counts_its_own_retries() -> None:
    own = rules("oom:2 nccl:1")
    sentences, decided = [], NOTHING
    for at, cause in enumerate(["oom", "nccl", "oom", "nccl"]):
        decided = decide(own, failure(cause, at=at), decided)
        sentences.append(decided.sentence)
    assert sentences[:3] == [
        "Retry 1 of 2: --retry-on oom:2.",
        "Retry 1 of 1: --retry-on nccl:1.",
        "Retry 2 of 2: --retry-on oom:2.",
    ]
    assert sentences[3] == "It is not retried: the 1 retry is used up that --retry-on nccl:1 allows." and decided.stops
    assert own.needed_backoff_limit == 4, "the rules decide, and not the operator's limit"


def test_other_causes_are_not_retried() -> None:
    decided = decide(rules("oom:2"), failure(), NOTHING)
    assert decided.stops and decided.sentence == "It is not retried: --retry-on names oom:2, and this is none of them."


def test_without_rules_only_imports_are_not_retried() -> None:
    assert decide(RetryRules(), failure("import-error"), NOTHING).stops
    assert decide(RetryRules(), failure("oom"), NOTHING) == Decided(100.0)
    assert not decide(rules("import-error"), failure("import-error"), NOTHING).stops
    assert not decide(rules(never="oom"), failure("import-error"), NOTHING).stops, "who has rules has no default"


def test_lines_of_the_log_decide() -> None:
    log = "epoch 3\nNCCL WARN  Net : Connection timed out"
    assert not decide(rules("log:Net*timed"), failure(log=log), NOTHING).stops
    assert decide(rules("log:Net*reset"), failure(log=log), NOTHING).stops


def job(**annotations: str) -> dict[str, Any]:
    meta = {"name": "train", "namespace": "a", "uid": "u", "annotations": annotations}
    return {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "metadata": meta, "spec": {"runPolicy": {}}}


def test_rules_are_kept_on_the_job() -> None:
    own = RetryRules((parse_rule("oom:2", counts=True),), (parse_rule("exit:3", counts=False),))
    assert rules_of(job(**retry_annotations(own))) == own
    assert retry_annotations(RetryRules()) == {}
    assert rules_of(job(**{REQUEST_ANNOTATION: "{}"})) == RetryRules(), "a submit without rules has the default one"
    assert rules_of(job()) is None, "a manifest has none"


@pytest.mark.parametrize("text", ["", "{", "[[[", '{"a": 1}', "[1]", '["oon"]', "null", "3", "[" * 100_000])
def test_malformed_annotations_are_no_rules(text: str) -> None:
    found = rules_of(job(**{RETRY_ANNOTATION: text, NEVER_ANNOTATION: text}))
    assert found == RetryRules()
    assert decided_of(job(**{DECIDED_ANNOTATION: text})) == NOTHING


def test_a_decision_is_kept_and_ends_the_job() -> None:
    goes_on = decide(rules("oom:2"), failure("oom", at=12.5), NOTHING)
    patch = decision_patch(job(), goes_on)
    assert "spec" not in patch and decided_of(job(**patch["metadata"]["annotations"])) == goes_on
    stopped = decide(rules("nccl"), failure("oom"), goes_on)
    patch = decision_patch(job(), stopped)
    assert patch["metadata"]["uid"] == "u"
    assert patch["spec"] == {"runPolicy": {"activeDeadlineSeconds": 1, "cleanPodPolicy": "Running"}}
    ended = job(**patch["metadata"]["annotations"])
    ended["status"] = {"conditions": [{"type": "Failed", "status": "True", "message": "it was active longer"}]}
    assert phase_and_message(ended, [], None) == ("Failed", stopped.sentence)
    assert json.loads(patch["metadata"]["annotations"][DECIDED_ANNOTATION])["stops"] is True
