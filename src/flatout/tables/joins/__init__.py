"""Keys to slots inside the compiled step."""
