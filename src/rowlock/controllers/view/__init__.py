"""The objects of a cluster in memory, sorted, indexed and observed, as client-go's indexer: `state.py`. What is seldom read is JSON.

May import the words. The embedded store commits into it; over a real cluster watches feed it.
"""
