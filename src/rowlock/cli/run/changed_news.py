"""Sentences about a run that are worth a line once: they are told again when they change."""

from __future__ import annotations

import contextlib
import json
import os

from rowlock.cli.output import tell

_FILE = "told.json"
"""In the data directory: topic → the sentence that was told last."""


def tell_changed(directory: str, sentences: dict[str, str]) -> None:
    """Tell those sentences, by topic, that differ from what was told last time in this data directory. Where nothing can be kept, all
    are told each time."""
    path = os.path.join(directory, _FILE)
    last: object = None
    with contextlib.suppress(OSError, ValueError), open(path, encoding="utf-8") as file:
        last = json.load(file)
    told = last if isinstance(last, dict) else {}
    for topic, sentence in sentences.items():
        if sentence and sentence != told.get(topic):
            tell(sentence)
    if told != sentences:
        with contextlib.suppress(OSError):
            with open(f"{path}.{os.getpid()}", "w", encoding="utf-8") as file:
                json.dump(sentences, file)
            os.replace(file.name, path)
