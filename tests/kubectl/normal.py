"""What two runs of one kubectl command have in common: text and objects without times, ages, addresses and chosen ids.

Everything that is not named here counts: a column, a blank line, a field too many. Pure.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import yaml

Json = Any
Rule = tuple[re.Pattern[str], str]


def rules(table: Iterable[Sequence[str]]) -> list[Rule]:
    return [(re.compile(pattern), to) for pattern, to in table]


_OCTET = r"\d{1,3}"
_CLOCK = r"\d\d:\d\d:\d\d"
_ZONE = r"(?:Z| ?[+-]\d{4}|[+-]\d\d:\d\d)"

ANYWHERE = rules(
    (
        ("\x1b\\[[\\d;]*m", ""),  # colours
        (rf"^([IWEF])\d{{4}} {_CLOCK}\.\d+ +\d+ (\w+\.go):\d+\]", r"\1KLOG \2]"),
        (r"\b[\da-f]{8}(?:-[\da-f]{4}){3}-[\da-f]{12}\b", "UID"),
        (rf"\d{{4}}-\d\d-\d\d[T ]{_CLOCK}(?:\.\d+)?{_ZONE}?(?: UTC)?", "TIME"),
        (rf"\w\w\w, \d\d \w\w\w \d{{4}} {_CLOCK} [+-]\d{{4}}", "TIME"),  # RFC 1123, as `kubectl describe` writes it
        (r"https?://(?:localhost|127\.0\.0\.1|\[::1\]):\d+", "SERVER"),
        (r"\[::1\]:\d+", "LOOPBACK"),
        (rf"\b{_OCTET}(?:\.{_OCTET}){{3}}\b(?::\d+)?", "IP"),
        (r"\S*sha256:[\da-f]{12,64}", "IMAGE-ID"),
        (r"\b\w+://[\da-f]{12,}", "CONTAINER-ID"),
        (r"\b[\da-f]{64}\b", "LONG-ID"),
        (r"\bdocker\.io/library/", ""),
        (r"\bkube-api-access-\w{5}\b", "kube-api-access-SUFFIX"),
        (r"\S*/(LIVE|MERGED)-\d+", r"\1-N"),  # the folders of `kubectl diff`
        (r"(?i)\b(resource ?version:|generation:) +\"?\d+\"?", r"\1 N"),
    )
)
_DURATION = r"-?(?:\d+(?:\.\d+)?(?:ms|µs|[smhdy]))+"
PRINTED = rules(
    (
        (r"(?<=\S)[ \t]+", " "),  # the width of a column; indentation counts
        (r"[ \t]+$", ""),
        (rf"(?<!cpu: )(?<!cpu=)(?<!cpu\":\")(?<![\w.+-]){_DURATION}(?!\w)", "AGE"),  # 100m of CPU is no time
        (r"<invalid>", "AGE"),  # the age of what the clock says is not yet
        (r"AGE \(x\d+ over AGE\)", "AGE"),
    )
)
CHOSEN = {"uid": "UID", "resourceVersion": "RV", "generation": "N", "observedGeneration": "N", "nodePort": "PORT"}
"""Field → what stands for the number or id that a server chose. That there is one counts."""
UNSEEN = frozenset({"managedFields", "selfLink"})


def replaced(line: str, table: Iterable[Rule]) -> str:
    for pattern, to in table:
        line = pattern.sub(to, line)
    return line


def text_lines(text: str, own: Sequence[Rule], extra: Sequence[Rule]) -> list[str]:
    """Printed text. `own` names this run's namespace and folder, `extra` is the step's."""
    return [replaced(line, [*own, *ANYWHERE, *PRINTED, *extra]) for line in text.splitlines()]


def plain_object(value: Json, own: Sequence[Rule], extra: Sequence[Rule]) -> Json:
    """An object that was asked for with `-o json` or `-o yaml`."""
    if isinstance(value, dict):
        return {replaced(k, own): _field(k, value[k], own, extra) for k in sorted(value) if k not in UNSEEN}
    if isinstance(value, list):
        return [plain_object(each, own, extra) for each in value]
    if isinstance(value, str):
        return "\n".join(replaced(line, [*own, *ANYWHERE, *extra]) for line in value.split("\n"))
    return value


def _field(key: str, value: Json, own: Sequence[Rule], extra: Sequence[Rule]) -> Json:
    if key in CHOSEN and value and not isinstance(value, dict | list):
        return CHOSEN[key]
    return plain_object(value, own, extra)


def without(value: Json, path: Sequence[str]) -> Json:
    """The object without what stands at `path`; `*` is every key or element."""
    first, rest = path[0], path[1:]
    change: Callable[[Json], Json] = lambda inner: without(inner, rest)  # noqa: E731
    if isinstance(value, dict):
        hit = {k for k in value if first in ("*", k)}
        return {k: change(v) if k in hit else v for k, v in value.items() if rest or k not in hit}
    if isinstance(value, list) and first == "*" and rest:
        return [change(each) for each in value]
    return value


class TimesAreStrings(yaml.SafeLoader):
    """YAML as Kubernetes writes it: a time is a string."""


TimesAreStrings.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in known if not tag.endswith(":timestamp")]
    for first, known in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def parsed(text: str) -> Json:
    """JSON or YAML; None for what is neither."""
    try:
        if text.lstrip().startswith("{"):
            return json.loads(text)
        return yaml.load(text, TimesAreStrings)
    except (ValueError, yaml.YAMLError):
        return None
