"""A program at work under Keras: session, state, engine."""
