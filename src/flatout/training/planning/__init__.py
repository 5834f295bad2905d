"""From a call to a plan: facts are gathered, a pure function decides, and the model, once built, settles the engine."""
