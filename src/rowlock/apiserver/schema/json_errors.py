"""Error messages for invalid JSON, and for JSON of the wrong type. Pure."""

from __future__ import annotations

import json
from typing import Any


def json_error(body: bytes) -> str:
    """What is wrong with a text that should be JSON; "" if it is valid."""
    try:
        json.loads(body.decode("utf-8", "replace"), parse_constant=reject_constant)
    except json.JSONDecodeError as error:
        return f"line {error.lineno}, column {error.colno}: {error.msg}"
    except ValueError as error:
        return str(error)
    except RecursionError:
        return "it is nested too deeply"
    return ""


def reject_constant(text: str) -> Any:
    """Raise ValueError for NaN and Infinity, which Python's parser accepts by default."""
    raise ValueError(f"{text} is not JSON")


def json_type(value: Any) -> str:
    """The name of a value's type in Go's `encoding/json`."""
    names = {list: "array", dict: "object", str: "string", bool: "bool", int: "number", float: "number"}
    return names.get(type(value), "null")


def unmarshal_error(value: Any, expected: str) -> str:
    """The message of Go's `UnmarshalTypeError` for a value of the wrong type."""
    return f"json: cannot unmarshal {json_type(value)} into {expected}"
