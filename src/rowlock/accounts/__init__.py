"""Local accounts: people with a password, in a file of the data directory; how passwords are hashed, who may try how often; credentials of one user.

Rights are no business of this room: an account is a name that bindings may have as a user. May import the words. Begin with
`user_accounts.py`; `user_credentials.py` stands beside it.
"""
