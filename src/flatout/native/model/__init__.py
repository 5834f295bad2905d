"""A Keras model as a network of frozen facts, or a named reason."""
