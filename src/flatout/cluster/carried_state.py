"""What a process has beside the model that counts for a fit: random generators, and settings of Keras."""

from __future__ import annotations

from dataclasses import dataclass

from flatout.base.when_used import keras
from flatout.engines.rewind import Generators
from flatout.engines.select import engine_for
from flatout.seam.processes.process_state import ProcessState


@dataclass(frozen=True)
class CarriedState:
    """It goes to the processes of a group with the model, and comes back from the first of them."""

    generators: Generators
    process: ProcessState

    @classmethod
    def now(cls) -> CarriedState:
        return cls(Generators.now(engine_for(keras.config.backend())), ProcessState.now())

    def put(self, in_group: bool = False) -> None:
        """Have it here; `in_group` if other processes put the same."""
        self.process.put(in_group)
        self.generators.put_back(engine_for(keras.config.backend()))
