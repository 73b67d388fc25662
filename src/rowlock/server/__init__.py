"""Run:ai's REST API over any `Api`; JSON in, JSON out."""
