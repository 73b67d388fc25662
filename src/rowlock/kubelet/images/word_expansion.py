"""Words of a Dockerfile: split, unquoted and with variables expanded, as BuildKit's `shell` package does it. Pure."""

import re
from collections.abc import Mapping

_NAME = re.compile(r"[A-Za-z_]\w*|[0-9*#@?$!-]")
_MAX_DEPTH = 100
_HEREDOC = re.compile(r"\d*<<(-?)([^<]+)")
_MODIFIER = re.compile(r":?[-+?]|##?|%%?|//?")


def split_words(text: str, escape: str = "\\") -> list[str]:
    """Splits at spaces outside quotes; quotes and escapes stay. Raises ValueError if a quote is not closed."""
    words, current, quote, position = list[str](), list[str](), "", 0
    while position < len(text):
        character = text[position]
        if character == escape and quote != "'":
            current.append(text[position : position + 2])
            position += 2
            continue
        if quote:
            quote = "" if character == quote else quote
        elif character in "'\"":
            quote = character
        elif character.isspace():
            words += ["".join(current)] if current else []
            current.clear()
            position += 1
            continue
        current.append(character)
        position += 1
    if quote:
        raise ValueError("No closing quotation")
    return words + (["".join(current)] if current else [])


def expand_word(text: str, scope: Mapping[str, str], escape: str = "\\") -> str:
    """Removes quotes and expands `$A`, `${A}`, `${A:-default}`, `${A:+other}`, `${A#prefix}`, …, except in single quotes.
    Raises ValueError with what is wrong."""
    return _Expansion(text, scope, escape, has_quotes=True).run()


def expand_text(text: str, scope: Mapping[str, str]) -> str:
    """The same for text in which quotes have no meaning: a here-document. Raises ValueError."""
    return _Expansion(text, scope, "\\", has_quotes=False).run()


def announced_heredocs(text: str) -> list[tuple[str, bool, bool]]:
    """The here-documents of a line, in order: the word that ends each, whether leading tabs are removed, and whether variables are
    expanded. As in BuildKit it must be a whole word of the line: `1<<N` within quotes or brackets does not count."""
    try:
        words = split_words(text)
    except ValueError:
        return []
    return [found for word in words if (found := parse_heredoc(word))]


def parse_heredoc(word: str) -> tuple[str, bool, bool] | None:
    """Parses `<<-'END'`: the word, whether tabs are removed, whether variables are expanded. None = not a here-document."""
    match = _HEREDOC.fullmatch(word)
    try:
        if match is None or split_words(match[2]) != [match[2]]:
            return None
        name = expand_word(match[2], {})
    except ValueError:
        return None
    return name, bool(match[1]), name == match[2]


class _Expansion:
    """One pass over a text."""

    def __init__(self, text: str, scope: Mapping[str, str], escape: str, *, has_quotes: bool) -> None:
        self._text, self._scope, self._escape, self._has_quotes = text, scope, escape, has_quotes
        self._position = self._depth = 0

    def run(self) -> str:
        return self._until("")

    def _until(self, end: str) -> str:
        """The expanded text up to `end` (a brace, in the word of a variable), or to its end."""
        out = list[str]()
        while self._position < len(self._text):
            character = self._text[self._position]
            if character == end:
                return "".join(out)
            if character == "$":
                out.append(self._variable())
            elif character == "'" and self._has_quotes:
                out.append(self._read_single_quotes())
            elif character == '"' and self._has_quotes:
                out.append(self._read_double_quotes())
            elif character == self._escape:
                out.append(self._read_escape())
            else:
                out.append(character)
                self._position += 1
        if end:
            raise ValueError(f"syntax error: missing '{end}' in process")
        return "".join(out)

    def _read_escape(self) -> str:
        """Removes an escape, whatever follows, also in a here-document (as in BuildKit, two of them give one in the file)."""
        following = self._text[self._position + 1 : self._position + 2]
        if not following and self._has_quotes:
            following = self._escape
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
        out = list[str]()
        while self._position < len(self._text):
            character = self._text[self._position]
            following = self._text[self._position + 1 : self._position + 2]
            if character == '"':
                self._position += 1
                return "".join(out)
            if character == "$":
                out.append(self._variable())
            elif character == self._escape and following in ('"', "$", self._escape):
                out.append(following)
                self._position += 2
            else:
                out.append(character)
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
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            raise ValueError(f"more than {_MAX_DEPTH} variables stand within each other")
        word = self._until("}")
        self._depth -= 1
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
        return _Pattern(pattern).replace(value or "", replacement, every=modifier == "//")
    return value or ""


def _strip_pattern(value: str, pattern: str, *, at_end: bool, greedy: bool) -> str:
    """`value` without the shortest (`greedy`: longest) beginning or end that matches the pattern."""
    if at_end:
        return _strip_pattern(value[::-1], pattern[::-1], at_end=False, greedy=greedy)[::-1]
    end = _Pattern(pattern).end(value, 0, greedy=greedy)
    return value if end is None else value[end:]


class _Pattern:
    """A shell pattern of `*` and `?`, matched in time linear in the length of the text."""

    def __init__(self, text: str) -> None:
        self._length = len(text.rpartition("*")[2])
        """The length of the part after the last star."""
        parts = ["".join("." if c == "?" else re.escape(c) for c in part) for part in text.split("*")]
        self._parts = [re.compile(part, re.DOTALL) for part in parts]

    def end(self, text: str, begin: int, *, greedy: bool) -> int | None:
        """The end of the shortest or longest match in `text` that starts at `begin`; None = none matches."""
        first = self._parts[0].match(text, begin)
        if first is None or len(self._parts) == 1:
            return first.end() if first else None
        position = first.end()
        for part in self._parts[1:-1]:
            found = part.search(text, position)
            if found is None:
                return None
            position = found.end()
        if not greedy:
            found = self._parts[-1].search(text, position)
            return found.end() if found else None
        starts = range(len(text) - self._length, position - 1, -1)
        return next((start + self._length for start in starts if self._parts[-1].match(text, start)), None)

    def replace(self, text: str, replacement: str, *, every: bool) -> str:
        """Replaces the longest matches, from the left: the first one, or `every` one."""
        out, position = list[str](), 0
        while found := self._parts[0].search(text, position):
            end = self.end(text, found.start(), greedy=True)
            if end is None or end == found.start():  # then nothing further on matches, either; or it is empty
                break
            out += (text[position : found.start()], replacement)
            position = end
            if not every:
                break
        return "".join((*out, text[position:]))
