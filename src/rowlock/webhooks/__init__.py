"""Webhooks of JobSet and Kubeflow Trainer, as the API server calls them: what they fill in, what they refuse, and in which words.

The decisions are made in `training/admission`. May import `apiserver` and what it may. Begin with
`trainer_webhooks.py`.
"""
