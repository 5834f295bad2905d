"""Python looks for garbage less often: among all the backends' objects, that took a tenth of the time of the tests.

`conftest.py` imports it, and `make keras-tests` gives it to pytest as a plugin.
"""

import gc

gc.set_threshold(20_000, 10, 10)
