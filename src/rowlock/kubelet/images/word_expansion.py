"""Words of a Dockerfile: split, unquoted and with variables put in, as BuildKit's `shell` package does it. Pure."""

import re
from collections.abc import Mapping

_NAME = re.compile(r"[A-Za-z_]\w*|[0-9*#@?$!-]")
_MODIFIER = re.compile(r":?[-+?]|##?|%%?|//?")


def split_words(text: str, escape: str = "\\") -> list[str]:
    """Words between spaces that stand in no quotes; quotes and escapes stay. Raises ValueError where a quote is not closed."""
    words, current, quote, position = [], "", "", 0
    while position < len(text):
        character = text[position]
        if character == escape and quote != "'":
            current += text[position : position + 2]
            position += 2
            continue
        if quote:
            quote = "" if character == quote else quote
        elif character in "'\"":
            quote = character
        elif character.isspace():
            words += [current] if current else []
            current, position = "", position + 1
            continue
        current += character
        position += 1
    if quote:
        raise ValueError("No closing quotation")
    return words + ([current] if current else [])


def expand_word(text: str, scope: Mapping[str, str], escape: str = "\\") -> str:
    """Without its quotes, and `$A`, `${A}`, `${A:-default}`, `${A:+other}`, `${A#prefix}`, … put in; not within single
    quotes. Raises ValueError with what is wrong."""
    return _Expansion(text, scope, escape, has_quotes=True).run()


def expand_text(text: str, scope: Mapping[str, str]) -> str:
    """The same for text in which quotes are quotes: a here-document. Raises ValueError."""
    return _Expansion(text, scope, "\\", has_quotes=False).run()


class _Expansion:
    """One pass over a text."""

    def __init__(self, text: str, scope: Mapping[str, str], escape: str, *, has_quotes: bool) -> None:
        self._text, self._scope, self._escape, self._has_quotes = text, scope, escape, has_quotes
        self._position = 0

    def run(self) -> str:
        return self._until("")

    def _until(self, end: str) -> str:
        """What stands before `end` (a brace, in the word of a variable), or all."""
        out = ""
        while self._position < len(self._text):
            character = self._text[self._position]
            if character == end:
                return out
            if character == "$":
                out += self._variable()
            elif character == "'" and self._has_quotes:
                out += self._read_single_quotes()
            elif character == '"' and self._has_quotes:
                out += self._read_double_quotes()
            elif character == self._escape:
                out += self._read_escape()
            else:
                out += character
                self._position += 1
        if end:
            raise ValueError(f"syntax error: missing '{end}' in process")
        return out

    def _read_escape(self) -> str:
        """In a here-document an escape is one before a dollar alone."""
        following = self._text[self._position + 1 : self._position + 2]
        if not following or (not self._has_quotes and following not in ("$", self._escape)):
            self._position += 1
            return self._escape
        self._position += 2
        return following

    def _read_single_quotes(self) -> str:
        end = self._text.find("'", self._position + 1)
        if end < 0:
            raise ValueError("unexpected end of statement while looking for matching single-quote")
        inside = self._text[self._position + 1 : end]
        self._position = end + 1
        return inside

    def _read_double_quotes(self) -> str:
        self._position += 1
        out = ""
        while self._position < len(self._text):
            character = self._text[self._position]
            following = self._text[self._position + 1 : self._position + 2]
            if character == '"':
                self._position += 1
                return out
            if character == "$":
                out += self._variable()
            elif character == self._escape and following in ('"', "$", self._escape):
                out += following
                self._position += 2
            else:
                out += character
                self._position += 1
        raise ValueError("unexpected end of statement while looking for matching double-quote")

    def _variable(self) -> str:
        self._position += 1
        if self._text[self._position : self._position + 1] != "{":
            match = _NAME.match(self._text, self._position)
            if match is None:
                return "$"
            self._position = match.end()
            return self._scope.get(match[0], "")
        match = _NAME.match(self._text, self._position + 1)
        if match is None:
            raise ValueError("syntax error: bad substitution")
        self._position = match.end()
        value = self._scope.get(match[0])
        modifier = _MODIFIER.match(self._text, self._position)
        if modifier:
            self._position = modifier.end()
        if modifier is None and self._text[self._position : self._position + 1] != "}":
            raise ValueError(f"unsupported modifier in ${{{match[0]}…}}")
        word = self._until("}")
        self._position += 1
        return _apply_modifier(match[0], value, modifier[0] if modifier else "", word)


def _apply_modifier(name: str, value: str | None, modifier: str, word: str) -> str:
    """`${name<modifier>word}`."""
    kind = modifier.lstrip(":")[:1]
    is_set = bool(value) if modifier.startswith(":") else value is not None
    if kind == "-":
        return (value or "") if is_set else word
    if kind == "+":
        return word if is_set else ""
    if kind == "?":
        if not is_set:
            raise ValueError(f"{name}: {word or 'not set'}")
        return value or ""
    if kind in ("#", "%"):
        return _strip_pattern(value or "", word, at_end=kind == "%", greedy=len(modifier) == 2)
    if kind == "/":
        pattern, _, replacement = word.partition("/")
        count = 0 if modifier == "//" else 1
        return re.sub(_pattern(pattern), lambda _: replacement, value or "", count=count)
    return value or ""


def _strip_pattern(value: str, pattern: str, *, at_end: bool, greedy: bool) -> str:
    lengths = range(len(value) + 1)
    whole = re.compile(_pattern(pattern), re.DOTALL)
    for length in reversed(lengths) if greedy else lengths:
        part = value[len(value) - length :] if at_end else value[:length]
        if whole.fullmatch(part):
            return value[: len(value) - length] if at_end else value[length:]
    return value


def _pattern(text: str) -> str:
    """A shell pattern of `*` and `?` as a regular expression."""
    parts = {"*": ".*", "?": "."}
    return "".join(parts.get(character, re.escape(character)) for character in text)
