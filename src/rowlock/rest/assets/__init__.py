"""Assets and templates over REST: `/api/v1/asset/...`, `/api/v1/workload-templates`, and submits that name them.

May import what `rest` may. Begin with `assets.py`; `asset_store.py` has what both share.
"""
