"""Answers the kubelet's token requests in-process, in place of the TokenRequest API."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rowlock import kinds, objects
from rowlock.api import View
from rowlock.authentication.service_account_tokens import ServiceAccountTokens
from rowlock.authorization.rbac import RbacAuthorizer
from rowlock.errors import NotFound, not_found


@dataclass(frozen=True, slots=True)
class PodTokenSource:
    """Issues tokens bound to pods of this cluster."""

    tokens: ServiceAccountTokens
    authorizer: RbacAuthorizer
    view: View

    def load(self) -> None:
        """Read the signing key and import the libraries for it. Raises OSError, ValueError."""
        self.tokens.load()

    def request_token(self, pod: Any, audience: str, seconds: int) -> tuple[str, float]:
        """A token and its expiry (Unix seconds). `pod` has name, namespace, uid and account. Raises NotFound if pod or account is gone."""
        account = self.view.get(kinds.SERVICE_ACCOUNT, pod.namespace, pod.service_account)
        bound = self.view.get(kinds.POD, pod.namespace, pod.name)
        if account is None:
            raise not_found("serviceaccounts", pod.service_account)
        if bound is None or objects.uid(bound) != pod.uid:
            raise NotFound(f'pods "{pod.name}" not found')
        audiences = (audience,) if audience else ()
        issued = self.tokens.issue(account, audiences=audiences, seconds=seconds, bound=bound)
        return issued.token, float(issued.expires)

    def has_rights(self, namespace: str, account: str) -> bool:
        """Whether any binding names this account, or it sets automountServiceAccountToken."""
        if self.authorizer.has_bindings(f"system:serviceaccount:{namespace}:{account}"):
            return True
        found = self.view.get(kinds.SERVICE_ACCOUNT, namespace, account)
        return found is not None and found.get("automountServiceAccountToken") is True
