"""One request and one response: the parsed path and query, the decoded body, Status errors, Warning headers; who asks.

May import `schema`. Knows nothing of what a request does. Begin with `requests.py`.
"""
