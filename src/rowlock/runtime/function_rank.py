"""The program of the ranks of a job made by `rowlock.submit(fn)` (`python -m rowlock.runtime.function_rank`).

The pickled call is in variables from the job's Secret. They are removed from the environment before the function runs.
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
"""Prefix of the log line with a rank's result, in JSON: `{"rank": 0, "of": 2, "value": …}`."""
MAX_RESULT = 1_000_000
"""The most bytes of that line; the server splits log lines longer than 1 MiB."""
VARIABLE = "ROWLOCK_FUNCTION_"
"""Prefix, followed by a number, of the variables that hold the call."""


def take_call(environ: Any) -> dict[str, Any]:
    """Remove the call from the environment and return it: its pickle and the module path. Raises ValueError when there is none."""
    parts: list[str] = []
    while (part := environ.pop(f"{VARIABLE}{len(parts)}", None)) is not None:
        parts.append(part)
    if not parts:
        raise ValueError("no function came along: this program is for jobs that rowlock.submit made")
    call: dict[str, Any] = json.loads(zlib.decompress(base64.b64decode("".join(parts))))
    return call


def format_result(rank: int, world_size: int, value: Any) -> str:
    """The log line with this rank's return value. Raises TypeError if it is not JSON, ValueError if it is too long."""
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
    """Call the function and print its result; an exception of the function ends the rank."""
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
