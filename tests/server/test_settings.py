from typing import Any

import pytest

from tests.server.serving import settings
from unmask.core.errors import ConfigError


@pytest.mark.parametrize(
    "change",
    [{"model_id": ""}, {"context_length": 0}, {"max_choices": 0}, {"api_key": ""}, {"request_timeout_s": 0.0}],
    ids=str,
)
def test_impossible_values_are_refused(change: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=next(iter(change))):
        settings(**change)
