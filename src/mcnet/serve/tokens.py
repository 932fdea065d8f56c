"""The bearer token that is needed to change anything."""

import hashlib
import hmac
import os
import stat
from pathlib import Path

from mcnet.errors import InputError
from mcnet.serve.logs import log_event
from mcnet.serve.problem import Problem
from mcnet.serve.request import Request

__all__ = ["TOKEN_VARIABLE", "check_token", "read_token"]

TOKEN_VARIABLE = "MCNET_TOKEN"
_FEWEST_CHARACTERS = 16


def read_token(file: Path | None) -> bytes | None:
    """Return the SHA-256 of the token in a file, or in the environment; None if there is none.

    A worker needs to compare tokens and never to know one, so only the digest is kept.
    """
    if file is not None:
        try:
            text = file.read_text(encoding="utf-8").strip()
            mode = stat.S_IMODE(file.stat().st_mode)
        except (OSError, UnicodeDecodeError) as error:
            raise InputError(f"the token file {file} cannot be read ({error})") from None
        where = f"the file {file}"
        if mode & (stat.S_IRWXG | stat.S_IRWXO):
            reason = f"{file} has mode {mode:03o}: other users of this machine can read or change the token"
            log_event("token file open to others", "warning", reason=reason, advice=f"chmod 600 {file}")
    else:
        text, where = os.environ.get(TOKEN_VARIABLE, "").strip(), f"the variable {TOKEN_VARIABLE}"
        if not text:
            return None
    if len(text) < _FEWEST_CHARACTERS or not text.isascii() or not text.isprintable() or " " in text:
        raise InputError(
            f"the token in {where} is not at least {_FEWEST_CHARACTERS} printable ASCII characters without spaces; "
            "make one with: python -c 'import secrets; print(secrets.token_urlsafe(32))'"
        )
    return hashlib.sha256(text.encode()).digest()


def check_token(request: Request, digest: bytes | None) -> None:
    """Refuse a request that does not have the token."""
    if digest is None:
        raise Problem(
            403,
            "this service was started without a token, so nothing can be changed; start it with --token-file or "
            f"{TOKEN_VARIABLE}",
        )
    scheme, _, given = request.header("authorization").partition(" ")
    # Digests of equal length are compared in constant time, whatever was given.
    same = hmac.compare_digest(hashlib.sha256(given.strip().encode()).digest(), digest)
    if scheme.lower() != "bearer" or not same:
        problem = "the token is wrong" if given else "this needs a token"
        challenge = ("www-authenticate", 'Bearer realm="mcnet"')
        raise Problem(401, f"{problem}; send the header Authorization: Bearer TOKEN", headers=(challenge,))
