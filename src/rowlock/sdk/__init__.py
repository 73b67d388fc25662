"""The Python client: `Client` and `AsyncClient` for scripts and notebooks, and `submit`, which runs a function as ranks.

    from rowlock import Client

It speaks HTTPS with the server like every other client, so it imports nothing of the rest of the package. Begin with
`async_client.py`, from which `make docs` writes `client.py`; `calls.py` has every request once, for both clients.
"""
