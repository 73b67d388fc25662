"""Accounts as Run:ai's API has them, made of Kubernetes objects: applications, which are programs that log in. Pure.

May import the words. Begin with `applications.py`.
"""
