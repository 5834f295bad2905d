"""The order of rows, asked of Keras' own iterator."""
