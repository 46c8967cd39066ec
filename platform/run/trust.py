"""Trust: archray signs its runs and exports with a key outside of them, and runs no code of other folders.

The signature is an HMAC-SHA256 of the code that the folder may execute. It stays valid if the folder is moved or
renamed, and only the user can create it: nobody else can read the key.
"""

import hashlib
import hmac
import json
import os
import secrets
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from archray.errors import UntrustedCode
from archray.files import Folder

# The use of a run: a command reads its tables, executes the user's code in it, connects to its cluster, or unpickles
# the state of its Tune runs.
Uses = Literal["tables", "code", "cluster", "state"]
SIGNATURE = "signature"  # its key in manifest.json, and in the model.json of an export
TRUST_HELP = "Also if you did not make it on this machine: its code may run (docs/trust.md)."
KEY_BYTES = 32  # the size of the digest: RFC 2104, section 3


def key_file() -> Path:
    """The file with this user's key: `archray/key` in XDG_STATE_HOME, by default `~/.local/state`."""
    state = os.environ.get("XDG_STATE_HOME", "")
    return Path(state if os.path.isabs(state) else os.path.expanduser("~/.local/state")) / "archray" / "key"


def signature_of(content: Any, *, new_key: bool = False) -> str:
    """The signature of JSON-able content by this user's key.

    new_key: whether to create a key if there is none. Raises: OSError without a key that only this user can read.
    """
    file = key_file()
    if new_key:
        _make_key(file)
    with open(file, "rb") as stream:
        status, key = os.fstat(stream.fileno()), stream.read()
    if len(key) != KEY_BYTES or status.st_uid != os.getuid() or status.st_mode & 0o077:
        raise PermissionError(f"{file} is not a key that only you can read; delete it, and archray makes a new one")
    return hmac.new(key, json.dumps(content, sort_keys=True).encode(), hashlib.sha256).hexdigest()


def _make_key(file: Path) -> None:
    """Creates the key unless there is one; if several processes try at once, only one succeeds."""
    if file.exists():
        return
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    temporary = file.with_name(f"{file.name}-{uuid.uuid4().hex}")
    try:
        with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as stream:
            stream.write(secrets.token_bytes(KEY_BYTES))
            stream.flush()
            os.fsync(stream.fileno())
        os.link(temporary, file)  # unlike a rename it replaces no key of another process
    except FileExistsError:
        pass
    finally:
        temporary.unlink(missing_ok=True)


def signature(content: Any) -> str | None:
    """The signature of a new run or export; None if no key can be stored."""
    try:
        return signature_of(content, new_key=True)
    except OSError:
        return None


def is_own(content: Any, signed: Any) -> bool:
    """Whether `signed` is this user's signature of the content."""
    try:
        return isinstance(signed, str) and hmac.compare_digest(signature_of(content), signed)
    except (OSError, TypeError):  # no key, or a signature that is not ASCII
        return False


def signed_part(description: Mapping[str, Any], code: Mapping[str, str]) -> dict[str, Any]:
    """The signed part of a manifest, or of an export's `model.json`. code: SHA-256 of its files of code."""
    described = {name: value for name, value in description.items() if name != SIGNATURE}
    return {"code": dict(code), "described": described}


def refuse_code(folder: Folder, kind: str, actions: Sequence[str]) -> UntrustedCode:
    """The error for a folder of another user. kind: `run` or `export`. actions: of the command."""
    try:
        signature_of("")
        why = f"You did not make this {kind} on this machine, or its code or description was changed since"
    except FileNotFoundError:
        why = f"{key_file()}, with which archray knows its own folders, does not exist"
    except OSError as error:
        why = f"archray cannot read its key, and so cannot know your {kind}s: {error}"
    return UntrustedCode(
        f"expected a {kind} of your own, got {folder}: this would {' and '.join(actions)}, which can do all that you "
        f"can do. {why}. Look at it, and pass --trust (in Python trust=True) if you trust whoever made it"
    )
