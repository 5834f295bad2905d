"""All that touches Keras' internals, in one place."""
