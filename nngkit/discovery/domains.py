"""Domains: daemons, services and callers of one name work together, and see no others. Pure.

::

    check_domain("staging")                       -> "staging"
    domain_of(body)                               -> the field `domain` of an encoded message, "" without one
    with_domain(body, "staging")                  -> the same message with that field

A domain keeps apart teams that share a machine or a network by accident. It is no protection: a peer may say any name.
The default domain is "", and it is never on the wire. Peers of versions without domains, and services in the article's
text form, are of the default domain.
"""

from __future__ import annotations

from typing import Annotated, Final, TypeAlias

from msgspec import Meta

from nngkit import envelope
from nngkit.discovery.provider import MAX_WORD
from nngkit.errors import BadMessage, ConfigError, TooLarge
from nngkit.messages import Fields, Maps

_KEY: Final = b"\x66domain"  # the key as CBOR has it: a message without these bytes is of the default domain

Domain: TypeAlias = Annotated[str, Meta(max_length=MAX_WORD, pattern=r"^(?! ).*(?<! )\Z")]  # as check_domain


def check_domain(text: str) -> str:
    """Return `text`; ConfigError unless it is a domain: at most 64 printable bytes, no outer spaces; "" the default."""
    if (why := _wrong(text)) is not None:
        raise ConfigError("domain", why, text)
    return text


class OfDomain(Fields, frozen=True):
    """Any message, of which nothing but the domain is read."""

    domain: Domain = ""


ANY: Final = Maps[OfDomain]("discovery domain", OfDomain)


def domain_of(body: bytes) -> str:
    """Return the domain of an encoded message. Unintelligible ones are of the default domain: its parser reports them.

    Decodes only messages in which the name of the field occurs.
    """
    if _KEY not in body:
        return ""
    try:
        return ANY.decode(body).domain
    except (BadMessage, TooLarge):
        return ""


def with_domain(body: bytes, domain: str) -> bytes:
    """Return an encoded map with the field `domain`; unchanged for the default domain."""
    if not domain:
        return body
    fields = envelope.as_map(envelope.decode(body, what=ANY.what, limit=len(body)), what=ANY.what)
    return envelope.encode({**fields, "domain": domain})


def other_domain(theirs: str, ours: str) -> str:
    """Return the reason for which two peers do not work together."""
    return f"it is of {_named(theirs)}, not of {_named(ours)}"


def _named(domain: str) -> str:
    return f"the domain {domain!r}" if domain else "the default domain"


def _wrong(text: object) -> str | None:
    if not isinstance(text, str):
        return "domain is not text"
    if not text.isprintable():  # also refuses lone surrogates
        return "domain has characters that cannot be printed"
    if len(text.encode()) > MAX_WORD:
        return f"domain is over {MAX_WORD} bytes"
    return "domain begins or ends with a space" if text != text.strip() else None
