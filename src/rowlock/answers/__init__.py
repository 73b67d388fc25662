"""What the REST API answers, as types: each field once, for the server, the command lines, the Python client, the web UI and OpenAPI.

Every answer is a dict at run time, so importing a type costs nothing where it is only checked; `mypy` reads the same names wherever an
answer is made or read. `rest/openapi/answers.py` derives the schemas, `make docs` the web UI's `answers.ts`. May import: nothing.
Begin with `workloads.py`.
"""

from typing import Annotated, Any, TypedDict

Time = Annotated[str, "date-time"]
"""An RFC 3339 time in UTC."""
Json = dict[str, Any]
"""A JSON object whose fields are no part of the contract, or are a submit's own."""
Identified = TypedDict("Identified", {"id": str})
"""What any answer with an id can be passed as."""
