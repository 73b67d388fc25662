"""ID tokens at both faces' one door: whom a good one names, and every way in which a token can be bad."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import json
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from tests.authentication.oidc.provider import CLIENT, Provider, running_provider

from rowlock.authentication.oidc import provider as provider_module
from rowlock.authentication.oidc.id_tokens import MAX_TOKEN_BYTES, SKEW_S, IdTokens
from rowlock.authentication.oidc.provider import OidcProvider
from rowlock.authentication.users import AUTHENTICATED
from rowlock.errors import Unauthorized, Unavailable


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Provider]:
    with running_provider(tmp_path_factory.mktemp("provider")) as provider:
        yield provider


@pytest.fixture
def provider(running: Provider) -> Iterator[Provider]:
    kept = dict(running.keys), dict(running.person)
    yield running
    running.keys, running.person = kept
    running.answers.clear()
    running.asked.clear()


@dataclass
class World:
    known: OidcProvider
    tokens: IdTokens
    now: float


def play(provider: Provider, story: Callable[[World], Awaitable[None]], **settings: Any) -> None:
    async def main() -> None:
        world = World(OidcProvider(provider.settings(**settings)), None, time.time())  # type: ignore[arg-type]
        world.tokens = IdTokens(world.known, lambda: world.now)
        await world.known.refresh()
        assert world.known.problem == ""
        async with asyncio.timeout(200):
            await story(world)

    asyncio.run(main())


def refusal(world: World, token: str) -> str:
    assert world.tokens.find_user(token) is None
    with pytest.raises(Unauthorized) as refused:
        world.tokens.user_of(world.tokens.check(token))
    return refused.value.message


@pytest.mark.parametrize("kid", ["rsa-1", "ec-1"])
def test_a_good_token_names_a_user_with_his_groups(provider: Provider, kid: str) -> None:
    async def story(world: World) -> None:
        for _ in range(2):  # the second time it is remembered
            user = world.tokens.find_user(provider.token(kid))
            assert user is not None
            assert (user.name, user.uid) == ("oidc:ana@lab.example", "1234")
            assert user.groups == ("oidc:team", "oidc:system:masters", AUTHENTICATED)

    play(provider, story)


def test_the_clusters_own_names_are_nobodys(provider: Provider) -> None:
    """Also where the owner gave up the prefix: a provider makes nobody a master."""

    async def story(world: World) -> None:
        user = world.tokens.find_user(provider.token())
        assert user is not None and not user.is_master
        assert user.groups == ("team", AUTHENTICATED)
        for name in ("system:admin", "rowlock-admin", "app:ci", "unix:root"):
            assert "the cluster's own" in refusal(world, provider.token(email=name))

    play(provider, story, username_prefix="", groups_prefix="")


def signed_by_hand(header: dict[str, Any], claims: dict[str, Any], key: bytes = b"") -> str:
    """As no library would."""
    parts = [base64.urlsafe_b64encode(json.dumps(one).encode()).rstrip(b"=") for one in (header, claims)]
    signature = hmac.digest(key, b".".join(parts), hashlib.sha256) if key else b""
    return b".".join([*parts, base64.urlsafe_b64encode(signature).rstrip(b"=")]).decode()


def test_hostile_tokens(provider: Provider) -> None:
    other_rsa, other_ec = rsa.generate_private_key(65537, 2048), ec.generate_private_key(ec.SECP256R1())
    public = provider.keys["rsa-1"].public_key()
    spki = serialization.PublicFormat.SubjectPublicKeyInfo
    pem = public.public_bytes(serialization.Encoding.PEM, spki)
    claims = provider.claims()
    whole = provider.token()
    payload = whole.split(".")[1]
    hostile = {
        "alg none": signed_by_hand({"alg": "none"}, claims),
        "alg none, with a key's name": signed_by_hand({"alg": "none", "kid": "rsa-1"}, claims),
        "alg NoNe": signed_by_hand({"alg": "NoNe", "kid": "rsa-1"}, claims),
        "HS256 with the public key": signed_by_hand({"alg": "HS256", "kid": "rsa-1"}, claims, pem),
        "HS256 with the public key, no kid": signed_by_hand({"alg": "HS256"}, claims, pem),
        "RS384 is not in the list": jwt.encode(claims, provider.keys["rsa-1"], "RS384", {"kid": "rsa-1"}),
        "an EC signature under an RSA key's name": jwt.encode(claims, other_ec, "ES256", {"kid": "rsa-1"}),
        "an RSA signature under an EC key's name": jwt.encode(claims, other_rsa, "RS256", {"kid": "ec-1"}),
        "another key": jwt.encode(claims, other_rsa, "RS256", {"kid": "rsa-1"}),
        "its own key in the header": jwt.encode(claims, other_rsa, "RS256", {"jwk": jwt.algorithms.RSAAlgorithm.to_jwk(other_rsa.public_key(), as_dict=True)}),
        "a key somewhere else": jwt.encode(claims, other_rsa, "RS256", {"kid": "x", "jku": "https://evil.example/keys"}),
        "a kid that is a path": jwt.encode(claims, other_rsa, "RS256", {"kid": "../../etc/passwd"}),
        "crit": jwt.encode(claims, provider.keys["rsa-1"], "RS256", {"kid": "rsa-1", "crit": ["exp"]}),
        "a changed payload": whole.replace(payload, base64.urlsafe_b64encode(json.dumps({**claims, "email": "eve@lab.example"}).encode()).rstrip(b"=").decode()),
        "no signature": whole.rpartition(".")[0] + ".",
        "a signature too many": whole + ".AAAA",
        "deep": signed_by_hand({"alg": "RS256", "kid": "rsa-1"}, {**claims, "x": json.loads("[" * 500 + "]" * 500)}),
        "another audience": provider.token(aud="other"),
        "no audience": provider.token(aud=None),
        "several audiences, asked for by another client": provider.token(aud=[CLIENT, "other"], azp="other"),
        "several audiences, and nobody asked": provider.token(aud=[CLIENT, "other"]),
        "another issuer": provider.token(iss=provider.url + "/"),
        "no issuer": provider.token(iss=None),
        "expired": provider.token(exp=int(time.time() - SKEW_S) - 1),
        "no end": provider.token(exp=None),
        "an end that is a text": provider.token(exp="9999999999"),
        "an end that is true": provider.token(exp=True),
        "made in the future": provider.token(iat=int(time.time() + SKEW_S) + 60),
        "not before the future": provider.token(nbf=int(time.time() + SKEW_S) + 60),
        "no subject": provider.token(sub=None),
        "a subject that is a number": provider.token(sub=7),
        "no name": provider.token(email=None),
        "an empty name": provider.token(email=""),
        "a name that is a list": provider.token(email=["ana@lab.example"]),
        "a name with a line": provider.token(email="ana\nroot"),
        "an address that is not verified": provider.token(email_verified=False),
        "an address that is said to be verified in words": provider.token(email_verified="true"),
        "groups that are numbers": provider.token(groups=[1]),
        "very many groups": provider.token(groups=[str(n) for n in range(501)]),
        "without the claim that is required": provider.token(hd=None),
    }  # fmt: skip

    async def story(world: World) -> None:
        assert world.tokens.find_user(provider.token(hd="lab.example")) is not None
        for name, token in hostile.items():
            await world.tokens.look_up(token)
            assert world.tokens.find_user(token) is None, name

    provider.person["hd"] = "lab.example"
    hostile = {name: token for name, token in hostile.items()}
    play(provider, story, required_claims=(("hd", "lab.example"),))


def test_a_huge_token_is_not_even_read(provider: Provider) -> None:
    async def story(world: World) -> None:
        huge = provider.token(padding="x" * MAX_TOKEN_BYTES)
        assert not world.tokens.is_ours(huge)
        assert "at most" in refusal(world, huge)

    play(provider, story)


def test_a_token_ends_in_time_and_clocks_may_differ_a_little(provider: Provider) -> None:
    async def story(world: World) -> None:
        token = provider.token()
        assert world.tokens.find_user(token) is not None
        world.now += provider.lifetime + SKEW_S / 2
        assert world.tokens.find_user(token) is not None
        world.now += SKEW_S
        assert "has expired" in refusal(world, token)
        world.now -= 3 * provider.lifetime
        assert "not valid yet" in refusal(world, token)

    play(provider, story)


def test_a_login_gets_the_token_that_was_made_for_it(provider: Provider) -> None:
    async def story(world: World) -> None:
        assert world.tokens.check(provider.token(nonce="n"), "n")["nonce"] == "n"
        for token in (provider.token(nonce="m"), provider.token()):
            with pytest.raises(Unauthorized, match="another login"):
                world.tokens.check(token, "n")

    play(provider, story)


# ---------------------------------------------------------------- keys


def test_keys_that_were_changed_are_read_and_old_ones_count_no_longer(
    provider: Provider, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(provider_module, "RETRY_S", 0.0)

    async def story(world: World) -> None:
        old = provider.token()
        assert world.tokens.find_user(old) is not None
        provider.keys = {"rsa-2": rsa.generate_private_key(65537, 2048)}
        new = provider.token("rsa-2")
        assert world.tokens.find_user(new) is None
        await world.tokens.look_up(new)
        assert world.tokens.find_user(new) is not None
        assert world.tokens.find_user(old) is None, "the key is withdrawn, and what it has signed"

    play(provider, story)


def test_who_guesses_keys_does_not_make_us_ask_for_ever(provider: Provider) -> None:
    async def story(world: World) -> None:
        provider.asked.clear()
        key = rsa.generate_private_key(65537, 2048)
        for number in range(20):
            await world.tokens.look_up(jwt.encode(provider.claims(), key, "RS256", {"kid": str(number)}))
        assert provider.asked == []

    play(provider, story)


@pytest.mark.parametrize(
    "entry",
    [
        {"kty": "oct", "k": "c2VjcmV0"},
        {"kty": "RSA", "n": "AQAB", "e": "AQAB"},
        {"kty": "RSA", "n": "_" * 2048, "e": "AQAB"},
        {"kty": "EC", "crv": "P-256", "x": "AA", "y": "AA"},
        {"kty": "EC", "crv": "P-256"},
        {"kty": "RSA", "n": 7, "e": []},
        {"kty": "RSA", "use": "enc", "n": "AQAB", "e": "AQAB"},
        "no object",
    ],
)
def test_keys_that_are_none_are_left_out(provider: Provider, entry: Any) -> None:
    good = provider.key_set()["keys"]
    keys = provider_module.parse_keys({"keys": [entry, *good]})
    assert set(keys) == {"rsa-1", "ec-1"}


def test_without_any_keys_it_is_said_that_nobody_can_tell(provider: Provider) -> None:
    provider.answers["/.well-known/openid-configuration"] = 503

    async def main() -> None:
        tokens = IdTokens(OidcProvider(provider.settings()))
        with pytest.raises(Unavailable, match="try again in a moment"):
            await tokens.look_up(provider.token())

    asyncio.run(main())
