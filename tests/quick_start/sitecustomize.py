"""Python runs this at the start of the scripts that tests start: Keras imports sklearn if it can, for a second each."""

import sys

sys.modules["sklearn"] = None  # type: ignore[assignment]
