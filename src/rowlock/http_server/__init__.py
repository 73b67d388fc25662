"""HTTPS for every face of the server on its one port: listeners, TLS, certificates, limits of connections, uvicorn's HTTP protocol.

Does not know the applications that it serves (`apiserver`, `rest`, `browser`). Imports the words and `authentication`
(for the loopback addresses). Begin with `http_protocol.py`; `assembly.py` connects it with the applications.
"""
