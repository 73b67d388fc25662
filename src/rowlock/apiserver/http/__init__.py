"""One request and one response: the parsed path and query, the decoded body, Status errors, Warning headers.

May import `schema`, and `authorization` above the API server. Knows nothing of what a request does. Begin with `requests.py`.
"""
