"""Reading losses without running them: an abstract walk through their source, which tells the rules what it meets."""
