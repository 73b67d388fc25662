"""The Python client: `Client` and `AsyncClient` for scripts and notebooks, and `submit`, which runs a function as ranks.

    from rowlock import Client

It talks HTTPS to the server like every other client, so it hardly imports the rest of the package. Begin with
`async_client.py`, from which `make docs` generates `client.py`; `calls.py` defines every request once, for both clients.
"""
