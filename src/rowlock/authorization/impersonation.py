"""Impersonation (`kubectl --as`): a request as another user, if its sender has the verb `impersonate` on that user.

As in k8s.io/apiserver/pkg/endpoints/filters/impersonation.go: the user (or service account), each group and the uid are authorized one
by one.
"""

from __future__ import annotations

from collections.abc import Iterable

from rowlock.authentication.users import AUTHENTICATED, User, service_account_groups
from rowlock.authorization.authorizer import Attributes, Authorizer, require
from rowlock.errors import BadRequest

_AUTHENTICATION = "authentication.k8s.io"
_ANONYMOUS, _UNAUTHENTICATED = "system:anonymous", "system:unauthenticated"


def impersonate(authorizer: Authorizer, user: User, headers: Iterable[tuple[bytes, bytes]]) -> User:
    """The user that the `Impersonate-…` headers name, or `user` without them. Raises Forbidden; BadRequest for groups without a user."""
    values: dict[str, list[str]] = {}
    for header, value in headers:
        if header.startswith(b"impersonate-") and value:
            values.setdefault(header.decode("latin-1")[12:], []).append(value.decode("latin-1"))
    name, groups, uid = values.pop("user", [""])[0], values.pop("group", []), values.pop("uid", [""])[0]
    if not name:
        if groups or uid or values:
            raise BadRequest("Impersonate-Group, -Uid and -Extra need Impersonate-User")
        return user
    for attributes in _needed_rights(name, groups, uid, values):
        require(authorizer, user, attributes)
    groups = groups or list(service_account_groups(name))
    own = _UNAUTHENTICATED if name == _ANONYMOUS else AUTHENTICATED
    return User(name, tuple(dict.fromkeys((*groups, own))), uid=uid)


def _needed_rights(name: str, groups: list[str], uid: str, extra: dict[str, list[str]]) -> Iterable[Attributes]:
    parts = name.split(":")
    if service_account_groups(name):
        yield Attributes("impersonate", "", "serviceaccounts", "", parts[2], parts[3])
    else:
        yield Attributes("impersonate", "", "users", "", "", name)
    for group in groups:
        yield Attributes("impersonate", "", "groups", "", "", group)
    if uid:
        yield Attributes("impersonate", _AUTHENTICATION, "uids", "", "", uid)
    for key, texts in extra.items():
        for text in texts:
            yield Attributes("impersonate", _AUTHENTICATION, "userextras", key.removeprefix("extra-"), "", text)
