"""Losses: a checker of what makes them slow or wrong, a vectorizer that proves its rewrites, tables inside them."""
