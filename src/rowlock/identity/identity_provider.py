"""The identity provider that the flags of `rowlock up` configure: its documents, its tokens, and logins there."""

from __future__ import annotations

from dataclasses import dataclass

from rowlock.authentication.oidc.id_tokens import IdTokens
from rowlock.authentication.oidc.logins import OidcLogins
from rowlock.authentication.oidc.provider import OidcProvider
from rowlock.authentication.oidc.settings import OidcSettings, parse_settings
from rowlock.controllers.supervisor import supervise
from rowlock.server_settings import ServerSettings


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
