"""Keras' own steps behind the interface of an engine."""
