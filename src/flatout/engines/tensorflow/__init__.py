"""K steps as one `tf.function`."""
