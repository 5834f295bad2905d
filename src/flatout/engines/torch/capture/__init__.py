"""A step recorded as ATen operations, and what its Python must not do meanwhile."""
