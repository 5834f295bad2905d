"""The rules, by code."""
