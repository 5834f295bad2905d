"""One fit by several processes, on this machine or on several: they are started, watched, and their result fetched."""
