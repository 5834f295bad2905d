"""The recorded step as data: simplified, and printed as Python."""
