"""Trust: archray signs runs and exports with a key outside them, and executes code only from signed folders.

The signature is an HMAC-SHA256 of the code that the folder may execute. It stays valid if the folder is moved or
renamed. Only the user can create it, since only the user can read the key.
"""

import hashlib
import hmac
import json
import os
import secrets
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from archray.errors import UntrustedCode
from archray.files import Folder, create_secret

# The use of a run: a command reads its tables, executes the user's code in it, connects to its cluster, or resumes it.
Uses = Literal["tables", "code", "cluster", "resume"]
SIGNATURE = "signature"  # its key in manifest.json, and in the model.json of an export
TRUST_HELP = "Allow code from a folder that you did not create on this machine to run (docs/trust.md)."
KEY_BYTES = 32  # the size of the digest: RFC 2104, section 3


def key_file() -> Path:
    """Returns the file of this user's key: `archray/key` in XDG_STATE_HOME, by default `~/.local/state`."""
    state = os.environ.get("XDG_STATE_HOME", "")
    return Path(state if os.path.isabs(state) else os.path.expanduser("~/.local/state")) / "archray" / "key"


def signature_of(content: Any, *, new_key: bool = False) -> str:
    """Signs JSON-serializable content with this user's key.

    Args:
        new_key: whether to create a key if none exists.

    Raises: OSError without a key that only this user can read.
    """
    file = key_file()
    if new_key:
        create_secret(file, secrets.token_bytes(KEY_BYTES))
    with open(file, "rb") as stream:
        status, key = os.fstat(stream.fileno()), stream.read()
    if len(key) != KEY_BYTES or status.st_uid != os.getuid() or status.st_mode & 0o077:
        raise PermissionError(
            f"expected a key of {KEY_BYTES} bytes that only you can read in {file}. Delete the file; archray then "
            "creates a new key"
        )
    return hmac.new(key, json.dumps(content, sort_keys=True).encode(), hashlib.sha256).hexdigest()


def signature(content: Any) -> str | None:
    """Signs a new run or export; return None if no key can be stored."""
    try:
        return signature_of(content, new_key=True)
    except OSError:
        return None


def is_own(content: Any, signed: Any) -> bool:
    """Returns whether `signed` is this user's signature of the content."""
    try:
        return isinstance(signed, str) and hmac.compare_digest(signature_of(content), signed)
    except (OSError, TypeError):  # no key, or a signature that is not ASCII
        return False


def signed_part(description: Mapping[str, Any], code: Mapping[str, str]) -> dict[str, Any]:
    """Returns the signed part of a manifest, or of an export's `model.json`.

    Args:
        code: SHA-256 by file of code.
    """
    described = {name: value for name, value in description.items() if name != SIGNATURE}
    return {"code": dict(code), "described": described}


def reject_code(folder: Folder, kind: str, actions: Sequence[str]) -> UntrustedCode:
    """Builds the error for a folder of another user.

    Args:
        kind: `run` or `export`.
        actions: actions of the command, as verb phrases.
    """
    try:
        signature_of("")
        why = f"You did not create this {kind} on this machine, or its code or description was changed afterwards"
    except FileNotFoundError:
        why = f"The key {key_file()}, with which archray verifies your {kind}s, does not exist"
    except OSError as error:
        why = f"archray cannot read the key with which it verifies your {kind}s: {error}"
    return UntrustedCode(
        f"expected your {kind}, got {folder} of unknown origin: this would {' and '.join(actions)}, with all your "
        f"permissions. {why}. Review the code. If you trust its author, pass --trust (in Python trust=True)"
    )
