"""What Keras keeps to itself that counts for a fit which several processes share."""
