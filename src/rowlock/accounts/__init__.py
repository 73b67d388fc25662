"""Local accounts: people with a password, in a file of the data directory; how passwords are hashed, who may try how often; credentials of one user.

Rights are not decided here: an account is only a user name that role bindings can refer to. May import the words. Begin with
`user_accounts.py`, then `user_credentials.py`.
"""
