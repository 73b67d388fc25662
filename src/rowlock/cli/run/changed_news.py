"""Sentences about runs that are printed once, and again only when they change."""

from __future__ import annotations

import contextlib
import json
import os

from rowlock.cli.output import tell

_FILE = "told.json"
"""A file in the data directory: topic → the last sentence that was printed."""


def tell_changed(directory: str, sentences: dict[str, str]) -> None:
    """Print those of the sentences, given by topic, that differ from the last ones in this data directory. If the directory is not
    writable, all are printed each time."""
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
