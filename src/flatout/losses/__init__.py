"""Losses: a checker for what makes them slow or wrong, a vectorizer that proves its rewrites, and tables inside them."""
