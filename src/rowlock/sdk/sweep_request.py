"""Builds the body of a new sweep (`POST /api/v1/sweeps`) from the arguments of a Python program."""

from __future__ import annotations

import inspect
import math
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from rowlock.runtime.sweep_call import SweepCall
from rowlock.sdk.client_errors import ClientError
from rowlock.sdk.function_calls import describe_function, function_request, job_name
from rowlock.sdk.submission_body import JobRequest, job_request
from rowlock.sweeps.parameters import variable_name

Space = Mapping[str, Any]
"""Parameter → a list (also a range or a tuple) of values, one value, or a text as in `--param`: `1..5`, `loguniform(1e-5,1e-2)`."""
_WORKLOAD_NAME = "sweep"
"""What a submit must be called; the server names each run after the sweep and its number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepSubmit:
    """The sweep to run. `search` has the fields of the request that say what is tried, where they are given."""

    name: str
    space: Space
    search: Mapping[str, Any]
    job: JobRequest

    def body(self, default_project: str) -> dict[str, Any]:
        """The body of POST /sweeps. Raises ClientError for invalid fields."""
        workload = self.job.body(default_project)
        del workload["name"]
        workload.pop("useGivenNameAsPrefix", None)
        given = {name: value for name, value in self.search.items() if value is not None}
        return {"name": self.name, "parameters": dict(self.space), **given, "workload": workload}


def sweep_request(
    program: Any,
    space: Space,
    *,
    name: str,
    search: Mapping[str, Any],
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any] | None,
    fields: Mapping[str, Any],
) -> SweepSubmit:
    """A sweep of a function, or of a command. `fields`: those of `JobRequest`. Raises ClientError, TypeError."""
    plain = {parameter: _plain_values(parameter, given) for parameter, given in space.items()}
    if "name_is_prefix" in fields:
        raise TypeError("a sweep has no field 'name_is_prefix': its runs have its name and their number")
    shared = {**fields, "name": _WORKLOAD_NAME}
    if callable(program):
        job = function_request(_sweep_call(program, plain, args, kwargs or {}), args, kwargs, shared)
        words = [
            f"{parameter}={{{parameter}}}" for parameter in plain
        ]  # for who looks at the process, or at the best run
        job = replace(job, command=[*job.command, *words])
        stem = job_name(program)
    else:
        if args or kwargs:
            raise TypeError("args and kwargs are for a function; write them into the command")
        job, stem = job_request(**shared, command=program), "sweep"
    return SweepSubmit(
        name=name or f"{stem[:30].rstrip('-')}-{uuid.uuid4().hex[:6]}", space=plain, search=search, job=job
    )


def _plain_values(name: str, given: Any) -> Any:
    """What JSON can say of the values of a parameter. Raises ClientError."""
    values = list(given) if isinstance(given, (list, tuple, range)) else given
    for value in values if isinstance(values, list) else [values]:
        if not isinstance(value, (str, bool, int, float)) or (isinstance(value, float) and not math.isfinite(value)):
            raise ClientError(
                f"the parameter {name} has the value {value!r}: values are texts, numbers, True and False, in a list or a range;"
                " a text such as '1..5' or 'loguniform(1e-5,1e-2)' stands for many"
            )
    return values


def _sweep_call(fn: Callable[..., Any], space: Space, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> SweepCall:
    """The call of a run: values come back as they were given, and what a text stands for as numbers where they are such.
    Raises ClientError for a function that does not take the parameters."""
    if both := sorted(space.keys() & kwargs.keys()):
        raise ClientError(f"{both[0]} is a parameter of the sweep and in kwargs: leave it out of one of them")
    try:
        signature = inspect.signature(fn)
    except ValueError:
        pass  # a function of C does not tell what it takes
    else:
        try:
            signature.bind(*args, **kwargs, **space)
        except TypeError as error:
            names = ", ".join(space)
            raise ClientError(
                f"{describe_function(fn)} cannot be called with the parameters {names}: {error}"
            ) from None
    lists = {
        name: given if isinstance(given, list) else [given]
        for name, given in space.items()
        if not isinstance(given, str)
    }
    known = {name: {_text_of(value): value for value in values} for name, values in lists.items()}
    return SweepCall(fn, {name: variable_name(name) for name in space}, known)


def _text_of(value: Any) -> str:
    """The text that the server makes of a value."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)
