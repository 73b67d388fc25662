"""The REST API as an OpenAPI 3.1 document, derived from the table of routes, the table of a submit's fields, and answers' schemas.

May import what `rest` may. Begin with `document.py`.
"""
