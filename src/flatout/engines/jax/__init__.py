"""K steps as one XLA program."""
