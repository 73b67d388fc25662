"""`--retry-on` and `--never-retry-on`: whether a job that failed is started again depends on the cause. Pure.

The rules count beside the job's `backoffLimit`, which its operator counts. A job without rules of its own that was submitted through
rowlock has one: an import that fails is not tried again. Jobs that came as manifests have none; their restartPolicy decides.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, NamedTuple

from rowlock import objects
from rowlock.objects import Object
from rowlock.training.model import REQUEST_ANNOTATION
from rowlock.workloads.body_fields import Fields, did_you_mean
from rowlock.workloads.run_options.time_limit import ending_policy

RETRY_ANNOTATION, NEVER_ANNOTATION = "rowlock.dev/retry-on", "rowlock.dev/never-retry-on"
"""Job annotations: the rules, as JSON lists of texts."""
DECIDED_ANNOTATION = "rowlock.dev/retry-decided"
"""Job annotation: what was decided so far, as JSON: see `Decided`."""
HOLD_ANNOTATION = "rowlock.dev/restart-delay"
"""Pod annotation: the least seconds before rowlock's kubelet starts a container that failed again, so that the cause can be judged."""
HOLD_SECONDS = 2
CAUSES = ("oom", "nccl", "preempted", "node", "import-error")
"""What the words of a rule stand for, beside `exit:N` and `log:PATTERN`."""
DEFAULT_RULE = "import-error"
DEFAULT_TIMES, MOST_TIMES, _MOST_RULES, _LONGEST = 3, 100, 20, 200


class RetryRule(NamedTuple):
    """One rule. `cause` is a word of `CAUSES`, `exit` or `log`; `value`: the exit code or the pattern; `times`: how often it allows a retry."""

    text: str
    cause: str
    value: str = ""
    times: int = DEFAULT_TIMES


@dataclass(frozen=True, slots=True)
class RetryRules:
    retry: tuple[RetryRule, ...] = ()
    never: tuple[RetryRule, ...] = ()

    @property
    def needs_log(self) -> bool:
        return any(rule.cause == "log" for rule in (*self.retry, *self.never))

    @property
    def needed_backoff_limit(self) -> int:
        """A backoffLimit that leaves the decision to the rules: one more than they allow."""
        return sum(rule.times for rule in self.retry) + 1


NO_RULES = RetryRules()
_DEFAULT_LIMIT = 6
"""Run:ai's backoffLimit."""


def parse_rule(text: str, *, counts: bool) -> RetryRule:
    """`oom`, `oom:5`, `exit:17`, `exit:17:5`, `log:PATTERN`, `log:PATTERN:5`; numbers of retries only where `counts`. Raises ValueError with a
    sentence that can follow the name of the flag."""
    if len(text) > _LONGEST:
        raise ValueError(f"has {len(text)} characters; {_LONGEST} are allowed")
    word, _, rest = text.partition(":")
    if word not in (*CAUSES, "exit", "log"):
        known = ", ".join((*CAUSES, "exit:N", "log:PATTERN"))
        raise ValueError(f"must be one of {known}, but is {text!r}.{did_you_mean(word, (*CAUSES, 'exit', 'log'))}")
    value, times = ("", rest) if word in CAUSES else (rest, "")
    if counts and word not in CAUSES:
        value, _, times = (
            rest.rpartition(":") if objects.is_digits(rest.rpartition(":")[2]) and ":" in rest else (rest, "", "")
        )
    if word == "exit" and not (objects.is_digits(value) and 0 < int(value) <= 255):
        raise ValueError(f"needs an exit code from 1 to 255, such as exit:17, but is {text!r}")
    if word == "log" and not value.strip("*"):
        raise ValueError("needs a text of the log, such as log:CUDA*error; * stands for anything in a line")
    if times and not counts:
        raise ValueError(f"never retries, so it has no number, but is {text!r}")
    if times and not (objects.is_digits(times) and 0 < int(times) <= MOST_TIMES):
        raise ValueError(f"may retry 1 to {MOST_TIMES} times, but is {text!r}")
    return RetryRule(text, word, value, int(times) if times else DEFAULT_TIMES)


def parse_retries(spec: Fields) -> RetryRules:
    """The fields `retryOn` and `neverRetryOn` of a spec; mistakes are added to its errors."""
    return RetryRules(_parse_list(spec, "retryOn", counts=True), _parse_list(spec, "neverRetryOn", counts=False))


def parse_backoff_limit(spec: Fields) -> int:
    """The field `backoffLimit`: how often the job is started again at most."""
    limit, rules = spec.integer("backoffLimit"), parse_retries(spec)
    if rules.retry and not limit:  # 0 is what `rowlock run` sends; a policy may have added the rules
        return rules.needed_backoff_limit
    return _DEFAULT_LIMIT if limit is None else limit


def _parse_list(spec: Fields, name: str, *, counts: bool) -> tuple[RetryRule, ...]:
    if spec.get(name) is None:
        return ()
    texts = spec.texts(name)
    if texts is None or len(texts) > _MOST_RULES:
        spec.add_error(name, "type", f"must be a list of no more than {_MOST_RULES} causes, such as oom or exit:17.")
        return ()
    rules: list[RetryRule] = []
    for text in texts:
        try:
            rules.append(parse_rule(text, counts=counts))
        except ValueError as error:
            spec.add_error(name, "options", f"{error}.".replace("..", ".").replace("?.", "?"))
    return tuple(rules)


def retry_annotations(rules: RetryRules) -> dict[str, str]:
    """The annotations of the job that keep its rules."""
    lists = ((RETRY_ANNOTATION, rules.retry), (NEVER_ANNOTATION, rules.never))
    return {name: json.dumps([rule.text for rule in found]) for name, found in lists if found}


def rules_of(job: Object) -> RetryRules | None:
    """The rules of a job, the default one if it was submitted without; None if it came as a manifest without any. What is malformed is left
    out, since anybody may write annotations."""
    notes = objects.annotations(job)
    if not notes.keys() & {RETRY_ANNOTATION, NEVER_ANNOTATION}:
        return RetryRules() if REQUEST_ANNOTATION in notes else None
    return RetryRules(
        _read_list(notes.get(RETRY_ANNOTATION), counts=True), _read_list(notes.get(NEVER_ANNOTATION), counts=False)
    )


def _read_list(text: object, *, counts: bool) -> tuple[RetryRule, ...]:
    try:
        texts = json.loads(str(text or "[]"))
        return tuple(parse_rule(str(one), counts=counts) for one in texts[:_MOST_RULES])
    except (ValueError, TypeError, KeyError, RecursionError):
        return ()


# ---------------------------------------------------------------- what happened


class FailureFacts(NamedTuple):
    """What rules read of the failure of a rank. `causes`: those of `CAUSES` that it has; `finished`: when it ended, in Unix seconds; `log`: the
    end of its log, lines with "\\n" between."""

    causes: frozenset[str]
    code: int
    finished: float
    log: str = ""


def matches(rule: RetryRule, failure: FailureFacts) -> bool:
    """Whether a rule is about this failure."""
    if rule.cause == "exit":
        return failure.code == int(rule.value)
    if rule.cause == "log":
        return log_matches(rule.value, failure.log)
    return rule.cause in failure.causes


def log_matches(pattern: str, log: str) -> bool:
    """Whether a line of the log contains the pattern, in which `*` stands for any text. Takes time linear in the log: Python searches a long
    text in linear time, and each line by itself in that of its length times the pattern's."""
    parts = [part for part in pattern.split("*") if part]
    if not parts or "\n" in pattern:
        return False
    begin = 0
    while (at := log.find(parts[0], begin)) >= 0:
        at += len(parts[0])
        end = log.find("\n", at)
        for part in parts[1:]:
            found = log.find(part, at)
            if found < 0:
                return False
            if 0 <= end <= found:  # no line before that of `found` has this part behind the others
                begin = log.rfind("\n", 0, found) + 1
                break
            at = found + len(part)
        else:
            return True
    return False


# ---------------------------------------------------------------- what is decided


@dataclass(frozen=True, slots=True)
class Decided:
    """What was decided of a job. `at`: when the failure ended that was judged last, in Unix seconds; `counts`: how often each rule, by its text,
    allowed a retry."""

    at: float = 0.0
    sentence: str = ""
    counts: tuple[tuple[str, int], ...] = ()
    stops: bool = False

    def annotation(self) -> str:
        return json.dumps({"at": self.at, "sentence": self.sentence, "counts": dict(self.counts), "stops": self.stops})


def decided_of(job: Object) -> Decided:
    """The decision that a job's annotation keeps; an empty one if it keeps none."""
    try:
        kept = json.loads(str(objects.annotations(job).get(DECIDED_ANNOTATION) or "{}"))
        counts = tuple((str(name), int(count)) for name, count in dict(kept.get("counts") or {}).items())
        return Decided(float(kept.get("at") or 0.0), str(kept.get("sentence") or ""), counts, bool(kept.get("stops")))
    except (ValueError, TypeError, AttributeError, ArithmeticError, RecursionError):
        return Decided()


def decide(rules: RetryRules, failure: FailureFacts, before: Decided) -> Decided:
    """Whether the job is started again after this failure, the root cause of its incident, and the sentence that says why."""
    counts, at = dict(before.counts), failure.finished
    if rule := next((rule for rule in rules.never if matches(rule, failure)), None):
        return Decided(at, f"It is not retried: --never-retry-on {rule.text}.", before.counts, stops=True)
    rule = next((rule for rule in rules.retry if matches(rule, failure)), None)
    if rule is not None:
        count = counts.get(rule.text, 0) + 1
        if count > rule.times:
            words = "retry is" if rule.times == 1 else "retries are"
            sentence = f"It is not retried: the {rule.times} {words} used up that --retry-on {rule.text} allows."
            return Decided(at, sentence, before.counts, stops=True)
        counts[rule.text] = count
        return Decided(at, f"Retry {count} of {rule.times}: --retry-on {rule.text}.", tuple(counts.items()))
    if rules.retry:
        names = ", ".join(rule.text for rule in rules.retry)
        return Decided(
            at, f"It is not retried: --retry-on names {names}, and this is none of them.", before.counts, stops=True
        )
    if not rules.never and DEFAULT_RULE in failure.causes:
        sentence = "It is not retried: an import that fails would fail again (--retry-on import-error tries it)."
        return Decided(at, sentence, before.counts, stops=True)
    return Decided(at, "", before.counts)


def decision_patch(job: Object, decided: Decided) -> dict[str, Any]:
    """The patch that keeps a decision, and ends the job if it is not retried."""
    notes = {DECIDED_ANNOTATION: decided.annotation()}
    meta: dict[str, Any] = {"uid": objects.uid(job), "annotations": notes}
    if not decided.stops:
        return {"metadata": meta}
    return {"metadata": meta, "spec": {"runPolicy": ending_policy(job)}}


def decided_sentence(job: Object) -> str:
    """What was decided about the newest failure; "" if nothing was."""
    return decided_of(job).sentence
