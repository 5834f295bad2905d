"""Loops: what is iterated as axes, and what variables and entries that a loop changes are behind it."""
