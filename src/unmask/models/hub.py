"""Checkpoints by hub name: `org/name` or `org/name@revision`, fetched once and kept in the Hugging Face cache.

HF_HOME, HF_TOKEN, HF_ENDPOINT and HF_HUB_OFFLINE act as everywhere: huggingface_hub itself reads them.
"""

import re
from pathlib import Path

from unmask.core.errors import CheckpointError

_NAME = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*(@[\w./-]+)?")
_WANTED = ["*.json", "*.safetensors", "*.jinja", "*.txt", "*.model"]
"""What is fetched: never pickles, never code."""


def is_hub_name(name: str) -> bool:
    """Whether `name` is spelled like a checkpoint of the hub."""
    return _NAME.fullmatch(name) is not None


def fetch_checkpoint(name: str) -> Path:
    """Returns the local folder of a hub checkpoint, fetching what is not there yet.

    Args:
        name: `org/name`, or `org/name@revision` (branch, tag or commit).

    Raises:
        CheckpointError: it does not exist, needs a token, or cannot be reached and is not in the cache.
    """
    # heavy to import, and most starts never come here
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import (
        GatedRepoError,
        HfHubHTTPError,
        HFValidationError,
        LocalEntryNotFoundError,
        RepositoryNotFoundError,
        RevisionNotFoundError,
    )

    repository, _, revision = name.partition("@")
    try:
        return Path(snapshot_download(repository, revision=revision or None, allow_patterns=_WANTED))
    except GatedRepoError:
        raise CheckpointError(f"{repository} is gated: accept its terms on the hub and set HF_TOKEN") from None
    except RepositoryNotFoundError:
        raise CheckpointError(
            f"no checkpoint folder at {name} and no {repository} on the hub; check the spelling, or set HF_TOKEN if it "
            "is private"
        ) from None
    except RevisionNotFoundError:
        raise CheckpointError(f"{repository} has no revision {revision!r} on the hub") from None
    except LocalEntryNotFoundError:
        raise CheckpointError(
            f"no checkpoint folder at {name}, and {repository} is neither in the Hugging Face cache nor can the hub be "
            "reached; give a folder, or connect (and unset HF_HUB_OFFLINE)"
        ) from None
    except (HfHubHTTPError, HFValidationError, OSError) as error:
        raise CheckpointError(f"cannot fetch {repository} from the hub: {str(error).splitlines()[0]}") from error
