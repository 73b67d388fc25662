"""Words and lines of a Dockerfile: what BuildKit reads in them, in a time that grows with their length and no faster."""

import random
import re

import pytest

from rowlock.kubelet.images.dockerfile import BadDockerfile, parse
from rowlock.kubelet.images.word_expansion import announced_heredocs, expand_word

LONG = 400_000
"""With a squared cost a line of this length takes minutes or hours."""


@pytest.mark.parametrize(
    "text",
    [
        f"# a = b{' ' * LONG}c\nFROM x",
        f"#{' ' * LONG}\nFROM x",
        f"#{'a' * LONG}\nFROM x",
        f"FROM x\nRUN echo {'1' * LONG}",
        f"FROM x\nRUN echo {'1' * LONG}<",
        f"FROM x\nRUN echo {'<' * LONG}",
        f"FROM x\nCOPY {'--link ' * (LONG // 4)}a b",
        f"FROM x\nRUN {'a ' * LONG}",
        f"FROM x\nRUN a{chr(92)}\n{(' b' + chr(92) + chr(10)) * (LONG // 2)} c",
        f"FROM x\nRUN [{'[' * LONG}",
        f"FROM x\nENV A={'a' * LONG}\nENV B=${{A#*a*a*b}} C=${{A%%b*a*a*}} D=${{A//a*b/x}} E=${{A##*b}}",
        f"FROM x\nENV A={'$' * LONG} B={chr(34)}{'a' * LONG}{chr(34)}",
    ],
    ids=lambda text: f"{text[:18]!r}…{text[-12:]!r}",
)
def test_a_long_line_is_read_in_time(text: str) -> None:
    assert parse(text)[0].base == "x"


def test_variables_within_variables() -> None:
    assert expand_word("${A:-" * 50 + "x" + "}" * 50, {}) == "x"
    with pytest.raises(BadDockerfile, match="line 2: ENV: more than 100 variables stand within each other"):
        parse(f"FROM x\nENV A={'${A:-' * 5000}{'}' * 5000}")


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("<<EOF", [("EOF", False, True)]),
        ("cat <<'END-OF-IT' > /x", [("END-OF-IT", False, False)]),
        ("3<<-X <<Y", [("X", True, True), ("Y", False, True)]),
        ('cat <<"A B"', [("A B", False, False)]),
        ("echo $((1<<N))", []),
        ('python -c "print(1<<N)"', []),
        ("cat <<<WORD", []),
        (r"cat \<<WORD", []),
        ("a << b", []),
        ("echo it's <<EOF", []),
    ],
)
def test_what_announces_a_here_document(line: str, found: list[tuple[str, bool, bool]]) -> None:
    assert announced_heredocs(line) == found
    if not found:
        assert parse(f"FROM x\nRUN {line}\nRUN b")[0].steps[1].text == line


def test_patterns_mean_what_they_mean_to_a_shell() -> None:
    """Against regular expressions, tried piece by piece."""
    draw = random.Random(16)
    for _ in range(1000):
        value = "".join(draw.choices("ab.", k=draw.randrange(8)))
        pattern = "".join(draw.choices("ab*?", k=draw.randrange(5)))
        text = "".join({"*": ".*", "?": "."}.get(c, re.escape(c)) for c in pattern)
        heads = [n for n in range(len(value) + 1) if re.fullmatch(text, value[:n])]
        tails = [n for n in range(len(value) + 1) if re.fullmatch(text, value[n:])]
        expected = {
            "#": value[min(heads, default=0) :],
            "##": value[max(heads, default=0) :],
            "%": value[: max(tails, default=len(value))],
            "%%": value[: min(tails, default=len(value))],
        }
        if pattern.strip("*"):
            expected |= {"/": re.sub(text, "X", value, count=1), "//": re.sub(text, "X", value)}
        for sign, wanted in expected.items():
            word = f"${{V{sign}{pattern}{'/X' if '/' in sign else ''}}}"
            assert expand_word(word, {"V": value}) == wanted, (word, value)


def test_lines_end_where_those_of_buildkit_end() -> None:
    text = "\ufeff# escape=`\r\nFROM\tx\r\nRUN a\x0cb\u2028c `\r\n\td\r\nRUN echo ``\r\nRUN e"
    assert [step.text for step in parse(text)[0].steps] == ["x", "a\x0cb\u2028c \td", "echo ``", "e"]


def test_an_escape_character_that_is_none() -> None:
    with pytest.raises(BadDockerfile, match=r"line 2: escape=x: it is a backslash or a backtick"):
        parse("# syntax=docker/dockerfile:1\n# escape=x\nFROM a")


def test_a_step_is_shown_with_its_flags() -> None:
    text = "FROM a AS one\nFROM b\nCOPY --link --from=one x /y\nRUN --mount=target=/c,type=cache --network=default z"
    assert [str(step) for step in parse(text)[1].steps] == [
        "FROM b", "COPY --link --from=one x /y", "RUN --mount=type=cache,target=/c --network=default z",
    ]  # fmt: skip
