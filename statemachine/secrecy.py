"""Secrets that a text of others carries, and the one way in which they are removed from it.

Two kinds are known. The values of variables that somebody was given (`secrets_of`) are removed wherever they stand. Of
what nobody told us, only the look can tell: a password in a URI, the value of a variable or a header whose name says
that it is a secret, keys and tokens with a form of their own. Every text of a problem and every line of the log goes
through `without_tokens`; what tools say goes through both.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

MASK: Final = "***"
SECRET_CHARACTERS_MIN: Final = 4
"""Shorter values (`1`, `on`) are no secrets, and blotting them out would leave no readable text."""
LOOKED_THROUGH_CHARACTERS_MAX: Final = 1 << 16
"""Of a text that nobody has bounded yet: of a longer one the middle is left out first."""

_NAME: Final = r"(?:secret|token|passw(?:or)?d|credential|(?:api|access|private|account)[_-]?key|signature)"
_SECRET_NAME: Final = re.compile(r"SECRET|TOKEN|KEY|PASSWORD|CREDENTIAL|SAS")

# Each leaves what it has as its group `kept`, and the mask in place of the rest. Every repetition is bounded, or ends
# at what the next one begins with: what is looked through may have been written to take long.
_TOKENS: Final = tuple(
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        # a URI's user and password
        r"""(?P<kept>\b[a-z][a-z0-9+.-]{0,30}://)[^\s/"']+@""",
        # headers
        r"""(?P<kept>\bauthorization\b["']?\s{0,4}[:=]\s{0,4}["']?(?:[a-z0-9-]{1,30}\s{1,4})?)[^\s"',;]+""",
        r"""(?P<kept>\bbearer\s{1,4})(?=[^\s]*\d)[a-z0-9._~+/-]{8,}=*""",
        r"""(?P<kept>\b(?:set-)?cookie["']?\s{0,4}:\s{0,4}["']?)[^\n"']+""",
        rf"""(?P<kept>\bx-[a-z0-9-]{{0,40}}?{_NAME}[a-z0-9-]{{0,20}}["']?\s{{0,4}}[:=]\s{{0,4}}["']?)[^\s"',;&]+""",
        # a member of an object, a variable, a parameter of a URI
        rf"""(?P<kept>{_NAME}[a-z0-9_.-]{{0,32}}["']\s{{0,4}}:\s{{0,4}}["'])[^"']+""",
        rf"""(?P<kept>{_NAME}[a-z0-9_.-]{{0,32}}=["']?)[^\s"',;&]+""",
        r"""(?P<kept>[?&]sig=)[^\s"'&]+""",
        # what has a form of its own
        r"(?P<kept>)\b(?:AKIA|ASIA)[0-9A-Z]{16}\b",
        r"(?P<kept>)(?<![a-z0-9_-])eyJ[a-z0-9_-]{8,}\.[a-z0-9_-]{4,}\.[a-z0-9_-]{4,}",
        r"(?P<kept>)\b(?:gh[opsu]_|github_pat_|glpat-|hf_|nvapi-|xox[abp]-)[a-z0-9_-]{16,}",
        r"(?P<kept>-----BEGIN [A-Z ]{0,20}PRIVATE KEY-----)(?:(?!-----)[\s\S])+",
    )
)
_PERHAPS: Final = re.compile(
    rf"{_NAME}|://|author|bearer|cookie|[?&]sig=|AKIA|ASIA|eyJ|gh[opsu]_|_pat_|glpat-|hf_|nvapi-|xox|PRIVATE",
    re.IGNORECASE,
)
"""Most texts have nothing of the kind, which one look tells."""


def secrets_of(env: Iterable[str]) -> tuple[str, ...]:
    """Return the values of `NAME=value` variables that texts must not carry, longest first; PATH is no secret."""
    pairs = (variable.partition("=") for variable in env)
    return _longest_first(value for name, _, value in pairs if name != "PATH")


def secrets_by_name(env: Mapping[str, str]) -> tuple[str, ...]:
    """Return the values of those variables whose names say that they are secrets, longest first.

    For an environment that holds much else: the worker's own, with the credentials of its stores.
    """
    return _longest_first(value for name, value in env.items() if _SECRET_NAME.search(name.upper()))


def _longest_first(values: Iterable[str]) -> tuple[str, ...]:
    # The longest first, since one may be a part of another one.
    kept = {value for value in values if len(value) >= SECRET_CHARACTERS_MIN}
    return tuple(sorted(kept, key=lambda value: (-len(value), value)))


def without_secrets(text: str, secrets: Iterable[str]) -> str:
    """Return a text with every secret blotted out."""
    for secret in secrets:
        text = text.replace(secret, MASK)
    return text


def without_tokens(text: str) -> str:
    """Return a text without what looks like a secret. Doing it again changes nothing."""
    if len(text) > LOOKED_THROUGH_CHARACTERS_MAX:
        half = LOOKED_THROUGH_CHARACTERS_MAX // 2
        text = f"{text[:half]}…{text[-half:]}"
    if _PERHAPS.search(text) is None:
        return text
    for token in _TOKENS:
        text = token.sub(_masked, text)
    return text


def _masked(found: re.Match[str]) -> str:
    end = "@" if found[0].endswith("@") and "://" in found["kept"] else ""
    return f"{found['kept']}{MASK}{end}"
