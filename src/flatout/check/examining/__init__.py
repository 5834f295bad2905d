"""Which functions Keras would call, and the rules over them."""
