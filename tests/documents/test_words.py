"""A line is split into the words that `shlex` finds; what is too long is refused."""

from __future__ import annotations

import shlex
from random import Random

import pytest

from rowlock.documents.words import LONGEST, split_words


def test_words_are_those_of_shlex() -> None:
    dice = Random("words")
    for _ in range(20_000):
        text = "".join(dice.choice("ab '\"\\\n\t\réé#$`;\u2028") for _ in range(dice.randint(0, 12)))
        try:
            wanted = tuple(shlex.split(text))
        except ValueError:
            with pytest.raises(ValueError, match=r"No (closing quotation|escaped character)"):
                split_words(text)
        else:
            assert split_words(text) == wanted, text


def test_a_line_of_megabytes_is_refused() -> None:
    assert len(split_words("a " * (LONGEST // 2))) == LONGEST // 2
    with pytest.raises(ValueError, match=r"has 4000000 characters, and 65536 are split at most\. Send a list of words"):
        split_words("a " * 2_000_000)
