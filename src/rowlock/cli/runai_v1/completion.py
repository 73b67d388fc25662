"""`runai completion bash|zsh`: the words and flags of every command, from the tree, as a script for the shell."""

from __future__ import annotations

from collections.abc import Iterator

from rowlock.cli.grammar import Command, CommandError, CommandLine, Group, flags_of, suggest_nearest
from rowlock.cli.output import show

_SHELLS = ("bash", "zsh")
_SCRIPT = """_{program}() {{
  local path="" word i
  for ((i = 1; i < COMP_CWORD; i++)); do
    word="${{COMP_WORDS[i]}}"
    [[ $word == -* ]] && continue
    case " $(_{program}_words "$path") " in *" $word "*) path="${{path:+$path }}$word" ;; esac
  done
  COMPREPLY=($(compgen -W "$(_{program}_words "$path")" -- "${{COMP_WORDS[COMP_CWORD]}}"))
}}
_{program}_words() {{
  case "$1" in
{cases}
  esac
}}
complete -o default -F _{program} {program}
"""


def completion(line: CommandLine) -> int:
    from rowlock.cli.runai_tree import ROOT

    shell = line.word("shell: bash or zsh")
    if shell not in _SHELLS:
        raise CommandError(
            f"there is no completion for {shell}.{suggest_nearest(shell, list(_SHELLS))} Known: bash, zsh.", 2
        )
    cases = "\n".join(f"    '{path}') echo '{' '.join(words)}' ;;" for path, words in _word_lists(ROOT, ""))
    script = _SCRIPT.format(program="runai", cases=cases)
    show(("autoload -U +X bashcompinit && bashcompinit\n" if shell == "zsh" else "") + script)
    return 0


def _word_lists(node: Group | Command, path: str) -> Iterator[tuple[str, list[str]]]:
    """What may follow each path of commands."""
    if isinstance(node, Command):
        yield (
            path,
            [
                name
                for flag in flags_of(node)
                if not flag.refuse
                for name in flag.names.split()
                if name.startswith("--")
            ],
        )
        return
    children = [child for child in node.commands if not child.hidden]
    yield path, [child.name for child in children]
    for child in children:
        yield from _word_lists(child, f"{path} {child.name}".strip())
