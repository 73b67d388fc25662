"""Local accounts: people with a password, in a file of the data directory; how their passwords are hashed, and who may try how often.

Rights are no business of this room: an account is a name that bindings may have as a user. May import the words. Begin with
`user_accounts.py`.
"""
