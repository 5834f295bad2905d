"""What the functions and methods of libraries give, on lifted values."""
