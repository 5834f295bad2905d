"""The lifted interpreter: a function read with arrays in place of its loops."""
