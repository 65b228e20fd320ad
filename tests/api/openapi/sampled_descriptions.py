"""`python -m tests.api.openapi.sampled_descriptions [SEED]`: thirty descriptions of the API, drawn by seed (the commit)."""

import random
import sys

from tests.api.test_descriptions import Described, every_member, every_parameter, operations
from tests.matrices import commit

NUMBER = 30


def sample(seed: str) -> list[Described]:
    """The same descriptions for the same seed and document: of members, parameters and operations alike."""
    described = [*every_member(), *every_parameter()]
    described += [("operation", each["operationId"], each["description"]) for each in operations()]
    return random.Random(seed).sample(sorted(set(described)), NUMBER)  # noqa: S311  # not for secrets


if __name__ == "__main__":
    seed = sys.argv[1] if sys.argv[1:] else commit()
    print(f"seed {seed}")
    for where, name, description in sample(seed):
        print(f"{where}.{name}: {' '.join(description.split())}")
