"""Who asks: the owner's token, a file of users, tokens of service accounts, applications and people; for every face of the cluster.

What a user may do is decided in `authorization`. Imports the words, `accounts` and `workloads`. Begin with `users.py`.
"""
