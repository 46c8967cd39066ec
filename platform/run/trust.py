"""Whose run or export a folder is: archray signs its own with a key outside of them, and runs no code of others.

The signature is an HMAC-SHA256 of what the folder may execute. It stays valid where the folder is moved or renamed, and
a stranger cannot make it without the key, which only this user can read.
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

# What a command does with a run beyond reading its tables: it executes the user's code that the run keeps (and connects
# to its cluster, or unpickles the state of its Tune runs).
Uses = Literal["tables", "code", "cluster", "state"]
SIGNATURE = "signature"  # the key of it in manifest.json, and in the model.json of an export
TRUST_HELP = "Also if you did not make it on this machine: its code may run (docs/trust.md)."
KEY_BYTES = 32  # as many as the digest has: RFC 2104, section 3


def key_file() -> Path:
    """The file with this user's key: `archray/key` in XDG_STATE_HOME, by default `~/.local/state`."""
    named = os.environ.get("XDG_STATE_HOME", "")
    state = Path(named) if os.path.isabs(named) else Path(os.path.expanduser("~/.local/state"))
    return state / "archray" / "key"


def signature_of(content: Any, *, new_key: bool = False) -> str:
    """The signature of JSON-able content by this user's key.

    new_key: whether a key is made if there is none. Raises: OSError if there is no key that only this user can read.
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
    """Makes the key unless there is one; of several processes that do so at once, one makes it."""
    if file.exists():
        return
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    temporary = file.with_name(f"{file.name}-{uuid.uuid4().hex}")
    try:
        with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as stream:
            stream.write(secrets.token_bytes(KEY_BYTES))
            stream.flush()
            os.fsync(stream.fileno())
        os.link(temporary, file)  # unlike a rename it replaces no key that another process has made
    except FileExistsError:
        pass
    finally:
        temporary.unlink(missing_ok=True)


def signature(content: Any) -> str | None:
    """The signature that a new run or export gets; None where no key can be kept."""
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


def signed_part(described: Mapping[str, Any], code: Mapping[str, str]) -> dict[str, Any]:
    """What of a manifest, or of an export's `model.json`, the signature is of. code: SHA-256 of its files of code."""
    return {"code": dict(code), "described": {name: value for name, value in described.items() if name != SIGNATURE}}


def refuse_code(folder: Folder, kind: str, actions: Sequence[str]) -> UntrustedCode:
    """The error of a folder that is not this user's own. kind: `run` or `export`. actions: what would be done."""
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
