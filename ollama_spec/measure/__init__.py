"""Proof of what was gained and what it cost: verify, bench, tune."""
