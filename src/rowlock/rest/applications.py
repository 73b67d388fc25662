"""`/api/v1/applications`: make, list and delete the accounts of programs; `/api/v1/token` and `/api/v2/token`: their
logins."""

from __future__ import annotations

import secrets
from functools import partial
from operator import eq
from typing import Any
from urllib.parse import parse_qs

from rowlock import kinds, objects
from rowlock.accounts.login_limits import LoginLimits
from rowlock.authentication.oidc.logins import LoginPending
from rowlock.errors import AlreadyExists, BadRequest, NotFound, TooManyRequests, Unauthorized, Unsupported
from rowlock.objects import Object
from rowlock.rest.accounts import access_rules
from rowlock.rest.accounts.provider_logins import FIELDS, ProviderLogins, grant_of
from rowlock.rest.accounts.user_credentials import user_key
from rowlock.rest.call import AccessToken, JsonResult, RestCall, RestSettings
from rowlock.rest.workloads import ACCEPTED, WRITE_OPTIONS
from rowlock.selectors import parse_labels
from rowlock.workloads.accounts import applications
from rowlock.workloads.accounts.access_rules import RuleSubject

_GRANTS = {
    "client_credentials": ("clientid", "clientsecret"),
    "app_token": ("appid", "appsecret"),
    "password": ("username", "password"),
}
"""Grant type → the names of its id and secret fields in lower case, because clients spell them differently."""


async def create(call: RestCall) -> Any:
    """POST /applications: create an application. Only this answer has the secret. Raises AlreadyExists, BadRequest,
    Unsupported."""
    call.validate_query()
    _refuse_on_real_cluster(call)
    name, client_secret = applications.parse_name(await call.json()), secrets.token_hex(32)
    secret = applications.to_secret(name, client_secret, call.user)
    try:
        made = await call.context.api.create(kinds.SECRET, secret, options=WRITE_OPTIONS)
    except AlreadyExists:
        raise AlreadyExists(f"application {name!r} already exists: delete it first, or choose another name") from None
    return JsonResult(201, {**applications.application_json(made), "clientSecret": client_secret})


async def index(call: RestCall) -> Any:
    """GET /applications: all of them, without their secrets. Raises Unsupported."""
    call.validate_query()
    _refuse_on_real_cluster(call)
    return {"applications": [applications.application_json(secret) for secret in await _list_secrets(call)]}


async def delete(call: RestCall) -> Any:
    """DELETE /applications/{id}: delete an application, by id or name, with its access rules, credentials and tokens. Raises
    NotFound, Unsupported."""
    call.validate_query()
    _refuse_on_real_cluster(call)
    wanted = str(call.path["id"])
    for secret in await _list_secrets(call):
        if wanted in (objects.uid(secret), applications.application_name(secret)):
            name = applications.application_name(secret)
            await access_rules.delete_rules_of(call, partial(eq, RuleSubject("app", name)))
            await call.context.api.delete(kinds.SECRET, applications.NAMESPACE, objects.name(secret))
            if (credentials := call.context.settings.credentials) is not None:
                await credentials.forget(user_key(applications.USER_PREFIX + name, is_owner=False))
            return JsonResult(202, ACCEPTED)
    raise NotFound(f"Resource id not found: there is no application {wanted!r}. GET /api/v1/applications lists them.")


def _refuse_on_real_cluster(call: RestCall) -> None:
    """Raises Unsupported on a real cluster, whose service accounts take the place of applications."""
    if call.context.settings.dialect is not None:
        raise Unsupported(
            "applications of a real cluster are its service accounts: `kubectl create serviceaccount NAME -n NAMESPACE` makes one; it logs"
            " in with the client id NAMESPACE:NAME and a token of `kubectl create token NAME -n NAMESPACE` as its secret"
        )


async def _list_secrets(call: RestCall) -> list[Object]:
    labelled = parse_labels("rowlock.dev/application")
    page = await call.context.api.list(kinds.SECRET, applications.NAMESPACE, labels=labelled)
    return [secret for secret in page.items if secret.get("type") == applications.SECRET_TYPE]


# ---------------------------------------------------------------- logins


class InvalidCredentials(BadRequest):
    """The credentials are wrong; the status is 400, as in Run:ai."""


class Logins:
    """Exchanges credentials for access tokens."""

    def __init__(self, settings: RestSettings, limits: LoginLimits, provider: ProviderLogins) -> None:
        self._settings, self._limits, self._provider = settings, limits, provider

    async def exchange(self, body: Any, address: str) -> dict[str, Any]:
        """`POST /api/v1/token`. Raises BadRequest, InvalidCredentials, TooManyRequests; Unauthorized, Unavailable of the
        provider."""
        fields = (
            {str(key).lower().replace("_", ""): value for key, value in body.items()} if isinstance(body, dict) else {}
        )
        grant = fields.get("granttype") or "client_credentials"
        if self._provider.is_configured and (provider_grant := grant_of(grant)):
            return await self._provider.exchange(provider_grant, fields, address)
        known = [one for one in _GRANTS if self._knows(one)]
        known += list(FIELDS) if self._provider.is_configured else []
        if grant not in known:
            known_grants = ", ".join(sorted(known)) or "none"
            raise BadRequest(
                f"this cluster issues no tokens for {str(grant)[:60]!r}: it knows {known_grants}. A person sends the token of the data"
                " directory, or a token of their own, as `Authorization: Bearer <token>`"
            )
        client_id, client_secret = (fields.get(field) for field in _GRANTS[grant])
        if not (isinstance(client_id, str) and isinstance(client_secret, str) and client_id and client_secret):
            names = " and ".join(_GRANTS[grant])
            raise BadRequest(f"{grant} needs {names}, two texts: {self._maker_of(grant)} makes them")
        issue = self._issue_to_user if grant == "password" else self._issue_to_application
        issued = await issue(client_id, client_secret, address)
        return {"accessToken": issued.token, "expiresIn": issued.seconds, "tokenType": "Bearer"}

    def find_account_name(self, body: Any) -> str:
        """The name of the account that a login is for, for the audit log; "" when there is no such account, because the
        text could be a password typed into the wrong field."""
        given = {str(key).lower(): value for key, value in body.items()} if isinstance(body, dict) else {}
        name, accounts = given.get("username"), self._settings.accounts
        return name if isinstance(name, str) and accounts is not None and accounts.get(name) else ""

    def _maker_of(self, grant: str) -> str:
        """What makes the credentials of a grant."""
        if grant == "password":
            return "`rowlock user create`"
        is_embedded = self._settings.dialect is None
        return "POST /api/v1/applications" if is_embedded else "`kubectl create token` for a service account"

    def _knows(self, grant: str) -> bool:
        return (self._settings.accounts if grant == "password" else self._settings.issue_token) is not None

    async def _issue_to_application(self, client_id: str, client_secret: str, address: str) -> AccessToken:
        self._limits.check(address)
        assert self._settings.issue_token is not None
        try:
            issued = await self._settings.issue_token(client_id, client_secret)
            if issued is None:
                raise InvalidCredentials("the client id or the client secret is wrong, or the application was deleted")
        except InvalidCredentials:
            self._limits.count_failure(address)
            raise
        return issued

    async def _issue_to_user(self, name: str, password: str, address: str) -> AccessToken:
        accounts, issue = self._settings.accounts, self._settings.issue_user_token
        assert accounts is not None and issue is not None
        account = await accounts.authenticate(name, password, address)
        if account is None:
            raise InvalidCredentials("the user name or the password is wrong")
        return await issue(account)

    async def exchange_form(self, text: bytes, address: str) -> tuple[int, dict[str, Any]]:
        """`POST /api/v2/token`: OAuth 2's names, in a form."""
        fields = {name: values[-1] for name, values in parse_qs(text.decode("latin-1")).items()}
        try:
            made = await self.exchange(fields, address)
        except InvalidCredentials as error:
            return 401, {"error": "invalid_client", "error_description": error.message}
        except LoginPending as error:
            word = "slow_down" if error.reason == "SlowDown" else "authorization_pending"
            return 400, {"error": word, "error_description": error.message}
        except Unauthorized as error:
            return 400, {"error": "invalid_grant", "error_description": error.message}
        except BadRequest as error:
            kind = "unsupported_grant_type" if fields.get("grant_type") not in _GRANTS else "invalid_request"
            return 400, {"error": kind, "error_description": error.message}
        except TooManyRequests as error:
            return 429, {"error": "slow_down", "error_description": error.message}
        renewal = {"refresh_token": made["refreshToken"]} if "refreshToken" in made else {}
        return 200, {
            "access_token": made["accessToken"],
            "token_type": "Bearer",
            "expires_in": made["expiresIn"],
            **renewal,
        }
