"""Who asks: the owner's token, a file of users, tokens of service accounts, applications and people; for every face of the cluster.

What somebody may do is `authorization`'s business. Imports the words, `accounts` and `workloads`. Begin with `users.py`.
"""
