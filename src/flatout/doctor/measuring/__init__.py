"""What is run, timed and watched to find out where a fit's time goes."""
