"""How candidates come to run: mapped into one program, interleaved on the device, on threads, or in turns."""
