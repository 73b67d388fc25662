"""Resolves tokens for the REST API, and issues tokens at login: of applications, of people, of this machine's Unix users."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path

from rowlock.accounts.local_login import LocalLogin, LocalToken, LocalUser
from rowlock.accounts.user_accounts import UserAccount
from rowlock.apiserver.server.settings import ApiServerSettings
from rowlock.authentication import access_tokens, users
from rowlock.authentication.oidc.id_tokens import IdTokens
from rowlock.authentication.oidc.logins import OidcLogins
from rowlock.authentication.oidc.provider import OidcProvider
from rowlock.authentication.oidc.settings import OidcSettings, parse_settings
from rowlock.authorization.rbac import RbacAuthorizer
from rowlock.authorization.user_rights import UserRights
from rowlock.controllers.supervisor import supervise
from rowlock.rest.authentication import Principal, TokenAuthenticator
from rowlock.rest.call import AccessToken, TokenIssuer, UserTokenIssuer
from rowlock.server_settings import ServerSettings


def rest_authenticator(settings: ApiServerSettings, authorizer: RbacAuthorizer) -> TokenAuthenticator:
    """Resolves tokens to the same users as the Kubernetes API does, as principals of the REST API."""
    keys = users.TokenAuthenticator(
        settings.token,
        settings.tokens,
        loopback_only=settings.owner_loopback_only,
        service_accounts=settings.find_token_user,
    )

    def authenticate(token: str, address: str) -> Principal | None:
        user = keys.authenticate(token, address)
        if user is None:
            return None
        name = "" if user is users.ADMIN else user.name
        return Principal(name, None if user.is_master else UserRights(authorizer, user))

    return authenticate


def token_issuer(settings: ApiServerSettings) -> TokenIssuer | None:
    """Issues tokens to applications; None if the server has no service account key."""
    tokens, accounts = settings.access_tokens, settings.service_accounts
    if tokens is None or accounts is None:
        return None

    async def issue(client_id: str, client_secret: str) -> AccessToken | None:
        await asyncio.to_thread(accounts.load)  # the first time it takes a tenth of a second
        issued = tokens.issue(client_id, client_secret)
        return None if issued is None else AccessToken(issued.token, access_tokens.LIFETIME_S)

    return issue


def user_token_issuer(settings: ApiServerSettings) -> UserTokenIssuer | None:
    """Issues tokens to people whose password was verified; None if the server has no service account key."""
    tokens, service_accounts = settings.access_tokens, settings.service_accounts
    if tokens is None or service_accounts is None:
        return None

    async def issue(account: UserAccount) -> AccessToken:
        await asyncio.to_thread(service_accounts.load)  # the first time it takes a tenth of a second
        return AccessToken(tokens.issue_for_user(account).token, access_tokens.USER_LIFETIME_S)

    return issue


def local_login(settings: ApiServerSettings, directory: Path) -> LocalLogin:
    """The socket at which this machine's Unix users log in."""
    tokens, service_accounts = settings.access_tokens, settings.service_accounts
    assert tokens is not None and service_accounts is not None, "an embedded cluster issues tokens"

    async def issue(user: LocalUser) -> LocalToken:
        await asyncio.to_thread(service_accounts.load)  # the first time it takes a tenth of a second
        return LocalToken(tokens.issue_for_local_user(user).token, access_tokens.LIFETIME_S)

    return LocalLogin(directory, issue)


@dataclass(frozen=True, slots=True)
class IdentityProvider:
    """One provider: its documents, its tokens, and logins there."""

    provider: OidcProvider
    tokens: IdTokens
    logins: OidcLogins

    @classmethod
    def connect(cls, settings: OidcSettings) -> IdentityProvider:
        """Sends no request: `run` reads the documents, so an unreachable provider does not delay the start."""
        provider = OidcProvider(settings)
        tokens = IdTokens(provider)
        return cls(provider, tokens, OidcLogins(provider, tokens))

    @classmethod
    def from_flags(cls, options: ServerSettings) -> IdentityProvider | None:
        """The configured provider; None if the flags name none. Raises BadRequest."""
        settings = parse_settings(options)
        return None if settings is None else cls.connect(settings)

    async def run(self) -> None:
        """Keep its documents fresh, until cancelled."""
        await supervise("the identity provider", self.provider.run)
