"""Who comes in, put together for an embedded cluster: tokens of both faces, logins that give tokens, the identity provider of the flags.

May import `authentication`, `authorization`, `apiserver` and `rest`. Begin with `token_sources.py`.
"""
