"""One request and one response: the parsed path and query, the decoded body, Status errors, Warning headers.

May import `schema`, and `authorization` outside the API server. Independent of what requests do. Begin with `requests.py`.
"""
