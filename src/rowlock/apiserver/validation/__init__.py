"""The rules of k8s.io/kubernetes/pkg/apis/*/validation, and the warnings of pkg/api/*/warnings.

Pure; may import `schema`. Begin with `rules.txt`, which has a line per field, and `rules.py`, which interprets it. Rules about
several fields are functions, one file per part. Errors are `field.Error`s (`documents/field_errors.py`).
"""
