"""Counter-based random numbers: a draw depends on what it is for, never on who else is drawing or when."""

from dataclasses import dataclass
from enum import IntEnum

import numpy as np


class Purpose(IntEnum):
    """What a number is drawn for; part of the key, so that uses never share a number."""

    TOKEN = 1
    ORDER = 2
    REMASK = 3
    NOISE = 4
    PATH = 5


@dataclass(frozen=True, kw_only=True)
class RandomStream:
    """All random numbers of one sequence (Philox counter generator; Salmon et al., SC 2011, through numpy).

    Attributes:
        seed: the request's seed, any int.
        choice: index of the choice within the request.
    """

    seed: int
    choice: int = 0

    def uniform(self, *, block: int, step: int, position: int, purpose: Purpose) -> float:
        """One number in [0, 1), a pure function of the arguments."""
        # An explicit uint64: numpy turns a list with a number above 2^63 into floats, and neighbouring seeds collide.
        key = np.array([self.seed % 2**64, self.choice * 256 + purpose], np.uint64)
        counter = [0, block, step, position]
        return float(np.random.Generator(np.random.Philox(key=key, counter=counter)).random())
