"""What compiles and launches a program: one file a library."""
