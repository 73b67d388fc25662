"""`completion bash|zsh|fish`: prints a script for the shell that calls the program itself for candidates.

So the script never becomes outdated, and also completes names of jobs and projects. It calls the hidden verb `__complete`.
"""

from __future__ import annotations

from types import ModuleType

from rowlock.cli.completion.candidates import candidates
from rowlock.cli.grammar import CommandError, CommandLine, suggest_nearest
from rowlock.cli.output import show

_BASH = """_{program}() {{
  local IFS=$'\\n' word words=() last=-1
  for word in "${{COMP_WORDS[@]:1:COMP_CWORD}}"; do # bash takes --flag=value for three words
    if ((last >= 0)) && [[ $word == = || ${{words[last]}} == --*= ]]; then words[last]+=$word; else words[++last]=$word; fi
  done
  COMPREPLY=($({program} __complete -- "${{words[@]}}" 2>/dev/null))
  if [[ ${{words[last]}} == --*=* && $COMP_WORDBREAKS == *=* ]]; then COMPREPLY=("${{COMPREPLY[@]#*=}}"); fi
}}
complete -o default -F _{program} {program}"""
_ZSH = """#compdef {program}
_{program}() {{
  local -a found
  found=("${{(@f)$({program} __complete -- "${{(@)words[2,CURRENT]}}" 2>/dev/null)}}")
  if [[ -n $found ]]; then compadd -- $found; else _files; fi
}}
if [[ $funcstack[1] == _{program} ]]; then _{program}; return; fi # zsh has loaded this file at the first TAB
(( $+functions[compdef] )) || {{ autoload -Uz compinit && compinit -i }}
compdef _{program} {program}"""
_FISH = """function __{program}_complete
  set -l found ({program} __complete -- (commandline -opc)[2..] (commandline -ct) 2>/dev/null)
  if set -q found[1]
    printf '%s\\n' $found
  else
    __fish_complete_path (commandline -ct)
  end
end
complete -c {program} -f -a '(__{program}_complete)'"""
_SCRIPTS = {"bash": _BASH, "zsh": _ZSH, "fish": _FISH}


def completion(line: CommandLine) -> int:
    """`source <(rowlock completion bash)`."""
    shell = line.word("shell: bash, zsh or fish")
    if shell not in _SCRIPTS:
        known = ", ".join(_SCRIPTS)
        raise CommandError(
            f"there is no completion for {shell}.{suggest_nearest(shell, list(_SCRIPTS))} Known: {known}.", 2
        )
    show(_SCRIPTS[shell].format(program=line.program))
    return 0


def complete(line: CommandLine) -> int:
    """`__complete -- WORDS`: print the candidates for the last word, one per line."""
    tree = _tree(line.program)
    for word in candidates(tree.ROOT, line.rest or [""], tree.SHARED):
        show(word)
    return 0


def _tree(program: str) -> ModuleType:
    from importlib import import_module

    return import_module("rowlock.cli.runai_tree" if program == "runai" else "rowlock.cli.commands.tree")
