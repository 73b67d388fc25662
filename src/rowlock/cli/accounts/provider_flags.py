"""Flags about an identity provider (OpenID Connect): those of `rowlock up`, under kube-apiserver's names, and those of
logins there."""

from __future__ import annotations

from rowlock.cli.grammar import Flag

PROVIDER_FLAGS = (
    Flag("--oidc-issuer-url", "text", "an identity provider (OpenID Connect) whose users may log in", value="URL"),
    Flag("--oidc-client-id", "text", "the client id of this server at the provider", value="ID"),
    Flag("--oidc-client-secret-file", "text", "a file (mode 0600) with that client's secret, if it has one", value="FILE"),
    Flag("--oidc-name", "text", "what the login page calls the provider (default: its host)", value="NAME"),
    Flag("--oidc-username-claim", "text", "the claim with a user's name (default: sub)", value="CLAIM"),
    Flag("--oidc-username-prefix", "text", "before these names; - is none (default: oidc:)", value="PREFIX"),
    Flag("--oidc-groups-claim", "text", "the claim with a user's groups (default: no groups)", value="CLAIM"),
    Flag("--oidc-groups-prefix", "text", "before these groups; - is none (default: oidc:)", value="PREFIX"),
    Flag("--oidc-required-claim", "text", "claims that a token must have (comma separated)", value="CLAIM=VALUE"),
    Flag("--oidc-ca-file", "text", "the certificate authority of the provider (default: the machine's)", value="FILE"),
    Flag("--oidc-signing-algs", "text", "accepted signature algorithms (comma separated; default: RS256,ES256)", value="LIST"),
)  # fmt: skip
LISTEN_FLAGS = (
    Flag(
        "--listen-host",
        "text",
        "where the browser comes back to from the identity provider (default: 127.0.0.1)",
        value="HOST",
    ),
    Flag("--listen-port", "int", "the port there, if the provider must know it (default: a free one)", value="PORT"),
)
