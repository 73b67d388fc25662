"""OpenID Connect: people whom an identity provider names, with its ID tokens as bearer tokens, or by a login of a browser or command line.

Imports the words, `accounts` and the other modules of `authentication`. Begin with `id_tokens.py`; only `provider_requests.py` uses the network.
"""
