"""HTTPS for every face of the server on its one port: listeners, TLS, certificates, limits of connections, uvicorn's HTTP protocol.

Knows bytes and connections, and nothing of what is served (`apiserver`, `rest`, `browser`). Imports the words and `authentication`
(which addresses are loopback's). Begin with `http_protocol.py`; `assembly.py` puts it under the applications.
"""
