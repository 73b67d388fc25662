"""The program of a rank whose job is a Python function: `rowlock.submit(fn)` made the job (`python -m rowlock.runtime.function_rank`).

The call comes pickled in variables of the job's Secret. It is removed from the environment before the function runs.
"""

from __future__ import annotations

import base64
import json
import os
import pickle
import sys
import zlib
from typing import Any

RESULT = "rowlock.result "
"""Begins the line with a rank's result: `{"rank": 0, "of": 2, "value": …}`."""
MAX_RESULT = 1_000_000
"""Bytes of that line at most; of a log's line the server passes on 1 MiB in one piece."""
VARIABLE = "ROWLOCK_FUNCTION_"
"""With a number behind it: the variables that hold the call."""


def take_call(environ: Any) -> dict[str, Any]:
    """The pickled call and the module path, taken out of the environment. Raises ValueError when there is none."""
    parts: list[str] = []
    while (part := environ.pop(f"{VARIABLE}{len(parts)}", None)) is not None:
        parts.append(part)
    if not parts:
        raise ValueError("no function came along: this program is for jobs that rowlock.submit made")
    call: dict[str, Any] = json.loads(zlib.decompress(base64.b64decode("".join(parts))))
    return call


def format_result(rank: int, world_size: int, value: Any) -> str:
    """The line that says what this rank returned. Raises TypeError for what is no JSON, ValueError for what no line holds."""
    try:
        line = RESULT + json.dumps({"rank": rank, "of": world_size, "value": value})
    except (TypeError, ValueError) as error:
        raise TypeError(
            f"rank {rank} returned a {type(value).__name__}, which JSON cannot say ({error}): return numbers, texts, lists"
            " and dicts, and write everything else to a file"
        ) from None
    if len(line) > MAX_RESULT:
        raise ValueError(
            f"rank {rank} returned {len(line):,} bytes of JSON, and at most {MAX_RESULT:,} are told: write it to a file, and"
            " return its path"
        )
    return line


def main() -> int:
    """Call the function; what it raises is the rank's failure."""
    try:
        call = take_call(os.environ)
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    sys.path[:] = [*dict.fromkeys([*call["path"], *sys.path])]
    fn, args, kwargs = pickle.loads(
        base64.b64decode(call["call"])
    )  # the submitter's own program, as its script would be
    value = fn(*args, **kwargs)
    rank, world_size = (int(os.environ.get(name) or default) for name, default in (("RANK", 0), ("WORLD_SIZE", 1)))
    print(format_result(rank, world_size, value), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
