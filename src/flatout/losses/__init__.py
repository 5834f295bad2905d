"""Losses: a checker for what makes them slow or wrong, a vectorizer, and tables inside them."""
