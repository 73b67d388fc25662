"""Webhooks of JobSet and Kubeflow Trainer, as the API server calls them: what they fill in, what they refuse, and in which words.

`training/admission` has the decisions. May import `apiserver` and what it may. Begin with `trainer_webhooks.py`.
"""
