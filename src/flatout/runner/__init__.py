"""Zero code change: what puts flatout under a script, a notebook or Keras' own tests."""
