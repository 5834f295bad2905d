"""A loop over the samples as a map of its body."""
