"""Stock Keras and flatout side by side: `flatout bench` and `flatout demo`."""
