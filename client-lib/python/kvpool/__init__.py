"""Asks kvpoold for KV-cache memory."""
