"""Names of users and client ids as Kafka writes them into ZooKeeper nodes and JMX, and the inverse.

Source: Kafka's `Sanitizer`, which is Java's `URLEncoder` and `URLDecoder` in UTF-8 with two changes.
"""

from __future__ import annotations

import re
from unicodedata import decimal
from urllib.parse import quote

_ENCODED = re.compile(r"\+|(?:%..)+|%", re.DOTALL)
_SURROGATE_BYTES = re.compile(rb"\xed[\xa0-\xbf][\x80-\xbf]?")
_FULL_WIDTH_LETTERS = "\uff21\uff22\uff23\uff24\uff25\uff26\uff41\uff42\uff43\uff44\uff45\uff46"


def sanitise(name: str) -> str:
    """The name as Kafka writes it: form encoding, then `+` as %20 and `*` as %2A; a lone surrogate becomes `?`."""
    return quote(name, safe=".-_", errors="replace").replace("~", "%7E")


def desanitise(text: str) -> str:
    """The name of a sanitised text, by form decoding, so a raw `+` is a space.

    Text that no sanitiser wrote is read as the broker reads it. Bytes that are not UTF-8 become U+FFFD. A byte may be
    written in any way that Java's `Integer.parseInt` reads as hexadecimal, such as %+1.

    Raises:
        ValueError: a % without such a byte after it; Kafka refuses nothing else.
    """
    return _ENCODED.sub(lambda found: _decoded(found[0]), text)


def _decoded(text: str) -> str:
    if text == "+":
        return " "
    data = bytes(_byte(text[at + 1 : at + 3]) for at in range(0, len(text), 3))
    # Java counts an encoded surrogate, whole or cut, as one error; Python counts each of its bytes.
    return _SURROGATE_BYTES.sub("\ufffd".encode(), data).decode(errors="replace")


def _byte(text: str) -> int:
    high, low = (_digit(char) for char in text) if len(text) == 2 else (-1, -1)
    if low < 0 or (high < 0 and text[0] not in "+-") or (text[0] == "-" and low > 0):
        raise ValueError(f"%{text} in a name is no byte in two hexadecimal digits")
    return max(high, 0) * 16 + low


def _digit(char: str) -> int:
    """Java's `Character.digit(char, 16)`: decimals of any script and full-width letters count; -1 for others."""
    if char > "\uffff":
        return -1  # it is two chars in Java, and neither is a digit
    letter = ("abcdefABCDEF" + _FULL_WIDTH_LETTERS).find(char)
    return decimal(char, -1) if letter < 0 else 10 + letter % 6
