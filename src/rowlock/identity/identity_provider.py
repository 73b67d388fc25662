"""The identity provider that `rowlock up` was told of: its documents, its tokens, logins there."""

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
    """One provider: its documents, its tokens, logins there."""

    provider: OidcProvider
    tokens: IdTokens
    logins: OidcLogins

    @classmethod
    def connect(cls, settings: OidcSettings) -> IdentityProvider:
        """Nothing is asked yet: `run` does, and a provider that is away holds up nothing."""
        provider = OidcProvider(settings)
        tokens = IdTokens(provider)
        return cls(provider, tokens, OidcLogins(provider, tokens))

    @classmethod
    def from_flags(cls, options: ServerSettings) -> IdentityProvider | None:
        """None where the flags name none. Raises BadRequest."""
        settings = parse_settings(options)
        return None if settings is None else cls.connect(settings)

    async def run(self) -> None:
        """Keep its documents fresh, until cancelled."""
        await supervise("the identity provider", self.provider.run)
