"""Users of a real cluster: they log in with a token of that cluster, read what its RBAC allows, and write with that token.

Reads come from this server's caches, so it watches the cluster's roles and bindings and authorizes reads itself (`RbacAuthorizer`, as in
the embedded cluster). Writes, logs, exec and the like go to the API server with the user's own token, and that server decides. `rowlock up
--kubeconfig` serves users of the cluster beside the owner of the data directory.

An application logs in with such a token as its secret and gets the same token back (`KubeUsers.issue_token`); it is not stored.
"""

from __future__ import annotations

import hmac
import time
from pathlib import Path

from starlette.requests import Request as HttpRequest

from rowlock import kinds
from rowlock.authentication.users import LOOPBACK_ADDRESSES, User
from rowlock.authorization.authorizer import Attributes, require
from rowlock.authorization.user_rights import UserRights
from rowlock.errors import Unauthorized
from rowlock.kube.cache import Cache
from rowlock.kube.client import Kube
from rowlock.kube.config import Credentials
from rowlock.kube.connection import Connection
from rowlock.kube.rate_limit import Limits
from rowlock.kube.users.application_secret import MAX_NAME, is_name_of, is_token, seconds_left
from rowlock.kube.users.cluster_users import MAKE_TOKEN, UNKNOWN_TOKEN, ClusterUsers
from rowlock.kube.users.followed_roles import FollowedRoles
from rowlock.kube.users.user_connection import UserConnection
from rowlock.rest.applications import InvalidCredentials
from rowlock.rest.authentication import Authenticator, Principal
from rowlock.rest.call import AccessToken


class KubeUsers:
    """Authenticates the owner of the data directory, who has the rights of the kubeconfig, and users of the cluster."""

    def __init__(self, kube: Kube, anonymous: Connection, owner_token: str, *, owner_loopback_only: bool) -> None:
        """`anonymous`: a connection to the same cluster without credentials."""
        self._kube, self._owner_token, self._owner_loopback_only = kube, owner_token, owner_loopback_only
        self._users, self._roles = ClusterUsers(anonymous), FollowedRoles(Cache(kube, kinds.RBAC))
        self.client = Kube(anonymous)
        """The client that sends users' requests; it has no credentials of its own."""
        self._authenticator = Authenticator(owner_token, "", self.authenticate, self.look_up, UNKNOWN_TOKEN)

    @classmethod
    def connect(
        cls, kube: Kube, kubeconfig: Path, context: str, owner_token: str, limits: Limits, *, owner_loopback_only: bool
    ) -> KubeUsers:
        """An instance with an anonymous connection by this kubeconfig; `close` it when done."""
        anonymous = Connection(Credentials(kubeconfig, context or None, anonymous=True), limits)
        return cls(kube, anonymous, owner_token, owner_loopback_only=owner_loopback_only)

    async def close(self) -> None:
        await self._users.close()

    async def run(self) -> None:
        """Follow the cluster's roles until cancelled."""
        await self._roles.run()

    async def look_up(self, token: str) -> None:
        """Ask the cluster for the user of a token, for a later `authenticate`. Raises ApiError if it does not answer."""
        await self._users.look_up(token)

    def authenticate(self, token: str, address: str) -> Principal | None:
        """The principal of a token; None if it is unknown. `address`: our address that the request reached. Raises Unavailable."""
        if hmac.compare_digest(token.encode(), self._owner_token.encode()):
            return None if self._owner_loopback_only and address not in LOOPBACK_ADDRESSES else Principal("")
        found = self._users.find(token)
        if found is None:
            return None
        user = User(found.name, found.groups, found.uid, found.extra)
        api = Kube(self._users.connection_of(token), decoder=self._kube.decoder)
        api.kept_log, api.pods_of = self._kube.kept_log, self._kube.pods_of
        return Principal(user.name, UserRights(self._roles.require_authorizer(), user), api)

    async def issue_token(self, client_id: str, secret: str) -> AccessToken:
        """Log an application in. Its secret is a token of the cluster, its client id the name of that token's user. Returns the same token.
        Raises InvalidCredentials, and ApiError if the cluster does not answer."""
        token = secret.strip()
        is_owners = is_token(token) and hmac.compare_digest(token.encode(), self._owner_token.encode())
        if is_owners or not is_token(token):
            what = "the token of the data directory" if is_owners else "a text that can be no token"
            raise InvalidCredentials(
                f"the client secret is {what}; on a real cluster it is a token of that cluster: {MAKE_TOKEN}"
            )
        await self.look_up(token)
        user = self._users.find(token)
        if user is None:
            raise InvalidCredentials(
                "the cluster does not accept the client secret, which must be one of its tokens: this one is wrong, is over or"
                f" was taken back; {MAKE_TOKEN}"
            )
        if not is_name_of(client_id, user.name):
            raise InvalidCredentials(
                f"the client secret is the token of {user.name}, and not of {client_id[:MAX_NAME]!r}: give the name as the client id"
            )
        return AccessToken(token, seconds_left(token, time.time()))

    async def require_path(self, request: HttpRequest) -> None:
        """Raises Unauthorized for an unknown token, and Forbidden for a user of the cluster whose roles do not have this path among their
        `nonResourceURLs`."""
        await self._authenticator.look_up(request)
        principal = self._authenticator.authenticate(request)
        if isinstance(principal.rights, UserRights):
            require(principal.rights.authorizer, principal.rights.user, Attributes("get", path=request.url.path))

    async def connection_for(self, request: HttpRequest) -> Connection | UserConnection:
        """A connection to the cluster's API with the caller's rights. Raises Unauthorized, Unavailable."""
        await self._authenticator.look_up(request)
        principal = self._authenticator.authenticate(request)
        if principal.rights is None:
            return self._kube.connection
        if not isinstance(principal.api, Kube):
            raise Unauthorized("this token is not one of the cluster")
        return principal.api.connection
