"""The rules of k8s.io/kubernetes/pkg/apis/*/validation, and the warnings of pkg/api/*/warnings.

Pure; may import `schema`. Begin with `rules.txt`, where each field has a line, and `rules.py`, which reads it; rules of
several fields are functions, one file a part. Errors are `field.Error`s (`documents/field_errors.py`).
"""
