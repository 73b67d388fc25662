"""`/api/v1/applications`: make, list and delete the accounts of programs; `/api/v1/token` and `/api/v2/token`: their logins."""

from __future__ import annotations

import secrets
from typing import Any
from urllib.parse import parse_qs

from rowlock import kinds, objects
from rowlock.errors import AlreadyExists, BadRequest, NotFound, TooManyRequests
from rowlock.objects import Object
from rowlock.rest.call import JsonResult, RestCall, TokenIssuer
from rowlock.rest.login_limits import LoginLimits
from rowlock.rest.workloads import ACCEPTED, WRITE_OPTIONS
from rowlock.selectors import parse_labels
from rowlock.workloads.accounts import applications

_GRANTS = {
    "client_credentials": ("clientid", "clientsecret"),
    "app_token": ("appid", "appsecret"),
}
"""Grant type → the fields of its id and its secret, in lower case: clients spell them in every way."""


async def create(call: RestCall) -> Any:
    """POST /applications: the answer has the secret, which nobody is told again. Raises AlreadyExists, BadRequest."""
    call.validate_query()
    name, client_secret = applications.parse_name(await call.json()), secrets.token_hex(32)
    secret = applications.to_secret(name, client_secret, call.user)
    try:
        made = await call.context.api.create(kinds.SECRET, secret, options=WRITE_OPTIONS)
    except AlreadyExists:
        raise AlreadyExists(f"application {name!r} already exists: delete it first, or choose another name") from None
    return JsonResult(201, {**applications.application_json(made), "clientSecret": client_secret})


async def index(call: RestCall) -> Any:
    """GET /applications: all of them, without their secrets."""
    call.validate_query()
    return {"applications": [applications.application_json(secret) for secret in await _list_secrets(call)]}


async def delete(call: RestCall) -> Any:
    """DELETE /applications/{id}: by id or name; its tokens are worth nothing from then on. Raises NotFound."""
    call.validate_query()
    wanted = str(call.path["id"])
    for secret in await _list_secrets(call):
        if wanted in (objects.uid(secret), applications.application_name(secret)):
            await call.context.api.delete(kinds.SECRET, applications.NAMESPACE, objects.name(secret))
            return JsonResult(202, ACCEPTED)
    raise NotFound(f"Resource id not found: there is no application {wanted!r}. GET /api/v1/applications lists them.")


async def _list_secrets(call: RestCall) -> list[Object]:
    labelled = parse_labels("rowlock.dev/application")
    page = await call.context.api.list(kinds.SECRET, applications.NAMESPACE, labels=labelled)
    return [secret for secret in page.items if secret.get("type") == applications.SECRET_TYPE]


# ---------------------------------------------------------------- logins


class InvalidCredentials(BadRequest):
    """Nobody logs in with these; Run:ai answers 400, too."""


class Logins:
    """Exchanges credentials for access tokens."""

    def __init__(self, issue: TokenIssuer | None, limits: LoginLimits) -> None:
        self._issue, self._limits = issue, limits

    async def exchange(self, body: Any, address: str) -> dict[str, Any]:
        """`POST /api/v1/token`. Raises BadRequest, InvalidCredentials, TooManyRequests."""
        fields = (
            {str(key).lower().replace("_", ""): value for key, value in body.items()} if isinstance(body, dict) else {}
        )
        grant = fields.get("granttype") or "client_credentials"
        if self._issue is None or grant not in _GRANTS:
            known = " and ".join(sorted(_GRANTS))
            raise BadRequest(
                f"this cluster issues no tokens for {str(grant)[:60]!r}: it knows {known}. A person sends the token of the data"
                " directory, or his own, as `Authorization: Bearer <token>`"
            )
        client_id, client_secret = (fields.get(field) for field in _GRANTS[grant])
        if not (isinstance(client_id, str) and isinstance(client_secret, str) and client_id and client_secret):
            names = " and ".join(_GRANTS[grant])
            raise BadRequest(f"{grant} needs {names}, two texts: POST /api/v1/applications makes them")
        self._limits.check(address)
        issued = await self._issue(client_id, client_secret)
        if issued is None:
            self._limits.count_failure(address)
            raise InvalidCredentials("the client id or the client secret is wrong, or the application was deleted")
        return {"accessToken": issued.token, "expiresIn": issued.seconds, "tokenType": "Bearer"}

    async def exchange_form(self, text: bytes, address: str) -> tuple[int, dict[str, Any]]:
        """`POST /api/v2/token`: OAuth 2's names, in a form."""
        fields = {name: values[-1] for name, values in parse_qs(text.decode("latin-1")).items()}
        try:
            made = await self.exchange(fields, address)
        except InvalidCredentials as error:
            return 401, {"error": "invalid_client", "error_description": error.message}
        except BadRequest as error:
            kind = "unsupported_grant_type" if fields.get("grant_type") not in _GRANTS else "invalid_request"
            return 400, {"error": kind, "error_description": error.message}
        except TooManyRequests as error:
            return 429, {"error": "slow_down", "error_description": error.message}
        return 200, {"access_token": made["accessToken"], "token_type": "Bearer", "expires_in": made["expiresIn"]}
