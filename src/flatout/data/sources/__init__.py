"""What the user passed as data: paths, frames and arrays, described."""
