"""What one piece of a log says of a training's progress: how far it is, and its figures.

A piece is a line, or one state of a line that a progress bar writes over. Read are `step=10 loss=0.31`, JSON lines, the dicts of the
Hugging Face Trainer, nanoGPT's `iter 10: loss 2.31`, `Epoch [3/10], Step [20/60], Loss: 0.5`, `loss: 2.30 [ 64/60000]`, and the bars of
tqdm, Lightning, Keras and rich with the figures beside them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

AXES = ("step", "global_step", "train_step", "iteration", "iter", "batch", "epoch")
"""Names of positions; if a piece has several, the one that comes first in this list is the x axis."""
ENDS_OF_PIECES = re.compile("[\n\r\b]+")
"""A bar goes back with carriage returns, or with backspaces (Keras): what stood there was a state of its own."""
MAX_PIECE = 4096
"""Characters of a piece that are parsed at most."""
_NUMBER = r"[-+]?(?:\d{1,40}\.?\d{0,40}(?:e[-+]?\d{1,4})?|\.\d{1,40}|nan|inf(?:inity)?)"
_NO_UNIT = r"(?![\w:%]|\.\w)"
_PHASES = r"(?:train(?:ing)?|val|valid|validation|eval|evaluation|test|dev|avg|average)"
_PAIR = re.compile(
    rf"(?<![\w./-])((?:{_PHASES} )?[A-Za-z_][\w./-]{{0,63}})['\"]?\s{{0,3}}[=:]\s{{0,3}}['\"]?({_NUMBER}){_NO_UNIT}(/\d)?",
    re.IGNORECASE | re.ASCII,
)
_WORDS = re.compile(
    rf"(?:^|[,;|:])\s{{0,3}}((?:{_PHASES} )?[A-Za-z_][\w./-]{{0,63}}) ({_NUMBER}){_NO_UNIT}(?=\s*(?:[,;|]|$))",
    re.IGNORECASE | re.ASCII,
)
"""`iter 10: loss 2.31, time 12ms`: a name and its number without a sign between them."""
_COUNTED = re.compile(
    r"\b(step|iter|iteration|batch|epoch)\s{1,3}#?\[?(\d{1,18})(?:\s?/\s?(\d{1,18}))?\b(?!\.)", re.IGNORECASE | re.ASCII
)
"""`Step 10`, `Epoch [3/10]`."""
_BRACKETS = re.compile(r"\[\s{0,12}(\d{1,18})\s?/\s?(\d{1,18})(?:\s?\(\d{1,3}%\))?\s?\]")
"""`loss: 2.30 [ 6400/60000]`: how much of the data has been seen."""
_TQDM = re.compile(r"^(.{0,200}?)\|[^|\[\]]{0,300}\| (\d{1,18})/(\d{1,18}|\?) \[([^\]]*)\]", re.ASCII)
_TQDM_COUNT = re.compile(r"^(?:([^|\[\]]{0,200}): )?(\d{1,18})it \[([^\]]*)\]", re.ASCII)
_RICH = re.compile(r"^(.{0,200}?)\s?[━╸╺]{3,400}\s.{0,40}?\b(\d{1,18})/(\d{1,18}|--)(?![\d/])(.*)$")
_KERAS = re.compile(
    r"^\s{0,8}(\d{1,18})/(\d{1,18}|Unknown) (?:[━=>.\[\]\s]{1,80})?(?:- )?\S{0,12}\d[\w.:]{0,8} .{0,40}?(?:- )(.*)$"
)
_UNKNOWN_TOTALS = ("?", "--", "Unknown")
_MOVES = re.compile(r"\x1b\[[0-9;?]{0,20}[A-Za-z]")
_TAG = re.compile(r"^\[(?:default|rank ?)\d{1,4}\]:? ?")
_NOT_METRICS = frozenset(
    (*AXES, "rank", "local_rank", "world_size", "pid", "port", "seed", "total", "max_steps", "v_num", "it/s", "eta")
)
_EVALUATES = re.compile(r"^\W{0,4}(val|valid|validation|eval|evaluation|test|dev)\b", re.IGNORECASE)
_RESULT = re.compile(
    r"loss|acc|val|eval|test|ppl|perplexity|f1|auc|bleu|rouge|score|error|mse|mae|rmse|iou|reward", re.IGNORECASE
)
"""Names that a line without a position may have: other numbers in such lines (sizes, ports) are no measurements."""


def is_evaluation(name: str) -> bool:
    """Whether a metric is one of an evaluation, by its name: `val_loss`, `test/acc`."""
    return _EVALUATES.match(name.replace("_", " ")) is not None


@dataclass(frozen=True, slots=True)
class Progress:
    """One piece. `axis` is "" where it has no position: its figures belong to the position before it."""

    axis: str
    count: float
    metrics: dict[str, float]
    total: float | None = None
    """Counts until the counter begins again, or ends; None where it does not say."""
    bar: str | None = None
    """The description of the progress bar that says it, without numbers; None for a line."""


def read_piece(text: str) -> Iterator[Progress]:
    """What a piece says: of a progress bar, and of a line that was written behind it by another stream."""
    if "\x1b" in text:
        text = _MOVES.sub("", text)
    text = _TAG.sub("", text.strip()[:MAX_PIECE])
    if not text:
        return
    found, rest = _read_bar(text)
    if found is not None:
        yield found
    if rest and (line := _read_line(rest)) is not None:
        yield line


def _read_bar(text: str) -> tuple[Progress | None, str]:
    """The bar at the beginning of the text, and what stands behind it; the whole text where there is none."""
    if "[" in text and (bar := _TQDM.match(text)):
        return _bar(bar[1].rpartition(":")[0] or bar[1], (bar[2], bar[3]), bar[4]), text[bar.end() :]
    if "it [" in text and (bar := _TQDM_COUNT.match(text)):
        return _bar(bar[1] or "", (bar[2], "?"), bar[3]), text[bar.end() :]
    if "━" in text and (bar := _RICH.match(text)):
        return _bar(bar[1], (bar[2], bar[3]), bar[4]), ""
    if text[0] in "0123456789" and (bar := _KERAS.match(text)):
        return _bar("", (bar[1], bar[2]), bar[3]), ""
    return None, text


def _bar(title: str, place: tuple[str, str], figures: str) -> Progress:
    name = re.sub(r"[\d/%.\s]+", " ", title).strip(" :|")[:40]
    return Progress(
        "step", float(place[0]), _metrics(figures), float(place[1]) if place[1] not in _UNKNOWN_TOTALS else None, name
    )


def _metrics(text: str) -> dict[str, float]:
    pairs: dict[str, float] = {}
    for name, number, fraction in _PAIR.findall(text):
        if not fraction and not _is_no_metric(name):
            pairs.setdefault(name, float(number))
    return pairs


def _last_word(name: str) -> str:
    """`Train Epoch` is an epoch."""
    return name.lower().rpartition(" ")[2]


def _is_no_metric(name: str) -> bool:
    return _last_word(name) in _NOT_METRICS


def _read_line(text: str) -> Progress | None:
    metrics = _metrics(text)
    counts, totals = _positions(text)
    axis = next((axis for axis in AXES if axis in counts and abs(counts[axis]) < 1e18), "")
    if axis:
        for name, number in _WORDS.findall(text):
            if not _is_no_metric(name):
                metrics.setdefault(name, float(number))
    if axis in ("", "epoch") and (seen := _BRACKETS.search(text)) and metrics:
        return Progress("step", float(seen[1]), metrics, float(seen[2]))
    if axis:
        return Progress(axis, counts[axis], metrics, totals.get(axis))
    evaluates = _EVALUATES.match(text)
    results = {name: value for name, value in metrics.items() if evaluates or _RESULT.search(name)}
    if evaluates:
        results = {name if _EVALUATES.match(name) else f"{evaluates[1]} {name}": v for name, v in results.items()}
    return Progress("", 0.0, results) if results else None


def _positions(text: str) -> tuple[dict[str, float], dict[str, float]]:
    """Axis → how far it is; axis → where its counter ends, as far as the line says."""
    counts: dict[str, float] = {}
    totals: dict[str, float] = {}
    for name, number, _ in _PAIR.findall(text):
        if (word := _last_word(name)) in AXES:
            counts.setdefault(word, float(number))
    for name, number, total in _COUNTED.findall(text):
        if (word := name.lower()) not in counts:
            counts[word] = float(number)
            if total:
                totals[word] = float(total)
    return counts, totals
