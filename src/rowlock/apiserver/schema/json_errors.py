"""What is said of a body that is no JSON, or not of the type that it should have. Pure."""

from __future__ import annotations

import json
from typing import Any


def json_error(body: bytes) -> str:
    """What is wrong with a text that should be JSON; "" when nothing is."""
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
    """NaN and Infinity, which Python takes. Raises ValueError."""
    raise ValueError(f"{text} is not JSON")


def json_type(value: Any) -> str:
    """As `encoding/json` calls it."""
    names = {list: "array", dict: "object", str: "string", bool: "bool", int: "number", float: "number"}
    return names.get(type(value), "null")


def unmarshal_error(value: Any, expected: str) -> str:
    """A value of the wrong type: `UnmarshalTypeError`."""
    return f"json: cannot unmarshal {json_type(value)} into {expected}"
