"""JSON patch (RFC 6902), merge patch (RFC 7386) and strategic merge patch, on values that are never changed in place.

Pure; may import `schema`. Server-side apply is in `apply`. Begin with `patches.py`.
"""
