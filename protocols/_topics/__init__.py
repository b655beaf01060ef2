"""Subscriptions: prefixes and patterns of topics, and handlers for them."""
