"""Parses the training progress in one piece of a log: the position, and the metrics.

A piece is a line, or one state of a line that a progress bar writes over. Read are `step=10 loss=0.31`, JSON lines, the dicts of the
Hugging Face Trainer, `print("step", 10, "loss", loss)`, nanoGPT's `iter 10: loss 2.31`, `Epoch [3/10], Step [20/60], Loss: 0.5`,
`loss: 2.30 [ 64/60000]`, columns between bars as Megatron-LM prints them, the rounds of XGBoost, LightGBM and CatBoost, and the bars of tqdm,
Lightning, Keras and rich with the figures beside them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from rowlock.objects import is_digits

AXES = ("step", "global_step", "train_step", "iteration", "iter", "batch", "num_updates", "epoch", "steps", "update")
"""Names of positions; if a piece has several, the one that comes first in this list is the x axis."""
ENDS_OF_PIECES = re.compile("[\n\r\b]+")
"""A bar overwrites itself with carriage returns, or backspaces (Keras): each state is a piece of its own."""
MAX_PIECE = 4096
"""The most characters of a piece that are parsed."""
_NUMBER = r"[-+]?(?:\d{1,3}(?:,\d{3}){1,6}(?![\d,])(?:\.\d{1,40})?|\d{1,40}\.?\d{0,40}(?:e[-+]?\d{1,4})?|\.\d{1,40}|nan|inf(?:inity)?)"
"""Also with thousands separators: `1,024`."""
_OF_LIBRARY = r"(?:(?:tensor|array|Array|np\.float\d\d)\(\[?)?"
"""The start of the repr of a torch, JAX or NumPy number: `loss: tensor(0.31, grad_fn=…)`."""
_NO_UNIT = r"(?![\w:]|\.\w)"
_PHASES = r"(?:train(?:ing)?|val|valid|validation|eval|evaluation|test|dev|avg|average)"
_NAME = rf"(?:{_PHASES} |[\w.-]{{1,40}}'s )?[A-Za-z_][\w./@-]{{0,63}}"
_PAIR = re.compile(
    rf"(?<![\w./@-])({_NAME})['\"]?\s{{0,3}}[=:]\s{{0,12}}['\"]?{_OF_LIBRARY}({_NUMBER}){_NO_UNIT}(%|/\d)?",
    re.IGNORECASE | re.ASCII,
)
_WORDS = re.compile(
    rf"(?:(?:^|[,;|:]|\s-)\s{{0,3}}|(?<=\s))({_NAME})\s{{1,6}}{_OF_LIBRARY}({_NUMBER}){_NO_UNIT}(%)?(\s*(?:[,;|(]|-\s|$))?",
    re.IGNORECASE | re.ASCII,
)
"""A name and its number separated only by blanks: `iter 10: loss 2.31, time 12ms`, `step 10 loss 2.31 acc 0.3`."""
_COLUMN = re.compile(
    rf"\s{{0,40}}([A-Za-z][\w /.()-]{{0,60}}?)\s{{0,12}}:\s{{0,40}}({_NUMBER})\s{{0,40}}", re.IGNORECASE | re.ASCII
)
"""`| lm loss: 1.042E+01 |`."""
_COUNTED = re.compile(
    r"\b(step|iter|iteration|batch|epoch|update)\s{1,12}#?\[?(\d{1,18})(?:\s?/\s{0,12}(\d{1,18}))?\b(?!\.\d)",
    re.IGNORECASE | re.ASCII,
)
"""`Step 10`, `Epoch [3/10]`."""
_COUNTED_BEFORE = re.compile(
    r"(?:^|\s)(\d{1,18})\s?/\s{0,12}(\d{1,18}) (?:batches|steps|iterations)\b", re.IGNORECASE | re.ASCII
)
_ROUND = re.compile(r"\[(\d{1,9})\]\t|(\d{1,9}):\t", re.ASCII)
"""`[10]	train-rmse:0.5` (XGBoost, LightGBM), `10:	learn: 0.5` (CatBoost)."""
_EPOCH_AND_BATCH = re.compile(r"\[(\d{1,9}),\s{1,9}(\d{1,18})\] ", re.ASCII)
"""`[1,  2000] loss: 2.198`, as in PyTorch's tutorials."""
_BRACKETS = re.compile(r"\[\s{0,12}(\d{1,18})\s?/\s{0,12}(\d{1,18})(?:\s{0,3}\(\s{0,3}\d{1,3}%\))?\s?\]")
"""`loss: 2.30 [ 6400/60000]`: how much of the data has been seen."""
_TQDM = re.compile(r"^(.{0,200}?)\|[^|\[\]]{0,300}\| (\d{1,18})/(\d{1,18}|\?) \[([^\]]*)\]", re.ASCII)
_TQDM_COUNT = re.compile(r"^(?:([^|\[\]]{0,200}): )?(\d{1,18})it \[([^\]]*)\]", re.ASCII)
_RICH = re.compile(r"^(.{0,200}?)\s?[━╸╺]{3,400}\s.{0,40}?\b(\d{1,18})/(\d{1,18}|--)(?![\d/])(.*)$")
_KERAS = re.compile(
    r"^(?=.{0,200}?(?:/step|/epoch|ETA|━|\[[=>.]))\s{0,8}(\d{1,18})/(\d{1,18}|Unknown) (?:[━=>.\[\]\s]{1,80})?(?:- )?\S{0,12}\d[\w.:]{0,8} .{0,40}?(?:- )(.*)$"
)
_UNKNOWN_TOTALS = ("?", "--", "Unknown")
_MOVES = re.compile(r"\x1b\[[0-9;?]{0,20}[A-Za-z]")
_TAG = re.compile(r"^\[(?:default|rank ?)\d{1,4}\]:? ?")
_NOT_METRICS = frozenset(
    (*AXES, "rank", "local_rank", "world_size", "pid", "port", "seed", "total", "max_steps", "v_num", "it/s", "eta")
)
_PARTS_OF_HUNDRED = re.compile(r"acc|precision|recall|f1|iou|top-?\d|wer|cer", re.IGNORECASE)
"""Metrics that are often given in per cent; with other names, a per cent is a progress indicator."""
_FIGURE = re.compile(
    r"(?:^|[\W_])(?:loss(?:es)?|acc|accuracy|ppl|perplexity|f1|auc|bleu|score|error|mse|mae|rmse|iou|reward|return|\w*norm|lr|learning.rate)"
    r"(?:$|[\W_\d])",
    re.IGNORECASE,
)
"""Names that are metrics even without a sign or comma: `step 10 loss 2.31`, but not `epoch 2 evaluating 64 batches`."""
_IN_WORDS = re.compile(r"\d|\b(?:nan|inf)", re.IGNORECASE)
_REPEATS = "wandb: "
"""Prefix of lines that repeat at the end what a run has printed before."""
_EVALUATES = re.compile(r"^\W{0,4}(val|valid|validation|eval|evaluation|test|dev)\b", re.IGNORECASE)
_RESULT = re.compile(
    r"loss|acc|val|eval|test|ppl|perplexity|f1|auc|bleu|rouge|score|error|mse|mae|rmse|iou|reward", re.IGNORECASE
)
"""Names that count as metrics in a line without a position: other numbers there (sizes, ports) are not metrics."""


def is_evaluation(name: str) -> bool:
    """Whether a metric belongs to an evaluation, by its name: `val_loss`, `test/acc`."""
    return _EVALUATES.match(name.replace("_", " ")) is not None


@dataclass(frozen=True, slots=True)
class Progress:
    """A parsed piece. `axis` is "" when it has no position: its metrics belong to the previous position."""

    axis: str
    count: float
    metrics: dict[str, float]
    total: float | None = None
    """The count at which the counter ends or restarts; None when unknown."""
    bar: str | None = None
    """The description of the progress bar, without numbers; None for a line."""


def read_piece(text: str) -> Iterator[Progress]:
    """Parse a piece: a progress bar, a line, or a bar followed by a line that another stream wrote."""
    if "\x1b" in text:
        text = _MOVES.sub("", text)
    text = _TAG.sub("", text.strip()[:MAX_PIECE])
    if not _IN_WORDS.search(text) or text.startswith(_REPEATS):
        return
    found, rest = _read_bar(text)
    if found is not None:
        yield found
    if rest and (line := _read_line(rest)) is not None:
        yield line


def _read_bar(text: str) -> tuple[Progress | None, str]:
    """The bar at the beginning of the text, and the text after it; (None, text) when there is none."""
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
    """Metrics of the form `name=number` or `name: number`. A column between `|` has one name, which may have several words."""
    columns = text.split("|") if text.count("|") > 1 else [text]
    pairs: dict[str, float] = {}
    for column in columns:
        if len(columns) > 1 and (found := _COLUMN.fullmatch(column)):
            _note(pairs, found[1], found[2])
            continue
        for name, number, follows in _PAIR.findall(column):
            if not follows or (follows == "%" and _PARTS_OF_HUNDRED.search(name)):
                _note(pairs, name, number)
    return pairs


def _note(pairs: dict[str, float], name: str, number: str) -> None:
    if not _is_no_metric(name):
        pairs.setdefault(name, float(number.replace(",", "")))


def _metrics_in_words(text: str, *, are_results: bool) -> dict[str, float]:
    """Metrics of the form `name number`: any that are set off by commas or the like, else only known figures. `are_results`: the line has
    no position, so only known figures with a decimal point count."""
    pairs: dict[str, float] = {}
    for name, number, percent, end in _WORDS.findall(text):
        is_result = _FIGURE.search(name) is not None
        is_set_off = bool(end) and not percent
        if are_results:
            is_set_off, is_result = False, is_result and not is_digits(number)
        if percent and not _PARTS_OF_HUNDRED.search(name):
            continue
        if is_set_off or is_result:
            _note(pairs, name, number)
    return pairs


def _last_word(name: str) -> str:
    """The last word of a name in lower case: `Train Epoch` is an epoch."""
    return name.lower().rpartition(" ")[2]


def _is_no_metric(name: str) -> bool:
    return _last_word(name) in _NOT_METRICS


def _read_line(text: str) -> Progress | None:
    metrics = _metrics(text)
    counts, totals = _positions(text)
    axis = next((axis for axis in AXES if axis in counts and abs(counts[axis]) < 1e18), "")
    seen = _BRACKETS.search(text) if axis in ("", "epoch") else None
    in_words = _metrics_in_words(text, are_results=not axis and seen is None)
    metrics |= {name: value for name, value in in_words.items() if name not in metrics}
    if seen and metrics:
        return Progress("step", float(seen[1]), metrics, float(seen[2]))
    if axis:
        return Progress(axis, counts[axis], metrics, totals.get(axis))
    evaluates = _EVALUATES.match(text)
    results = {name: value for name, value in metrics.items() if evaluates or _RESULT.search(name)}
    if evaluates:
        results = {name if _EVALUATES.match(name) else f"{evaluates[1]} {name}": v for name, v in results.items()}
    return Progress("", 0.0, results) if results else None


def _positions(text: str) -> tuple[dict[str, float], dict[str, float]]:
    """Axis → position, and axis → total, as far as the line tells."""
    counts: dict[str, float] = {}
    totals: dict[str, float] = {}
    for name, number, _ in _PAIR.findall(text):
        if (word := _last_word(name)) in AXES:
            counts.setdefault(word, float(number.replace(",", "")))
    for name, number, total in _COUNTED.findall(text):
        if (word := name.lower()) not in counts:
            counts[word] = float(number)
            if total:
                totals[word] = float(total)
    if (found := _COUNTED_BEFORE.search(text)) and "batch" not in counts:
        counts["batch"], totals["batch"] = float(found[1]), float(found[2])
    if found := _EPOCH_AND_BATCH.match(text):
        counts = {"epoch": float(found[1]), "batch": float(found[2])} | counts
    if not counts and (found := _ROUND.match(text)):
        counts["iteration"] = float(found[1] or found[2])
    return counts, totals
