"""From a plan to step 0: the model is built, rows are placed or streamed, the step is compiled."""
