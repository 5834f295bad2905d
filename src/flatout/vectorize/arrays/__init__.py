"""Arrays with loop axes, and what can be computed with them."""
