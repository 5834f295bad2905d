"""Losses that receive x, group statistics, and how both and tables come into a model's step."""
