"""What `format` means: each known name with a regular expression of our own, over ASCII.

Each is a subset of its standard that every reader of the standard accepts: dates are of the years 0001 to 9999 and
exist in the calendar, times have an offset and no leap second, e-mail addresses no quoted part, URIs no IP literal.
"""

from collections.abc import Mapping

_YEAR = r"(?:[1-9]\d{3}|0[1-9]\d\d|00[1-9]\d|000[1-9])"
_FOUR = r"(?:0[48]|[2468][048]|[13579][26])"  # multiples of 4 below 100, without 0
_LEAP_YEAR = rf"(?:\d\d{_FOUR}|{_FOUR}00)"
_DAY = r"(?:(?:0[1-9]|1[0-2])-(?:0[1-9]|1\d|2[0-8])|(?:0[13-9]|1[0-2])-(?:29|30)|(?:0[13578]|1[02])-31)"
_DATE = rf"(?:{_YEAR}-{_DAY}|{_LEAP_YEAR}-02-29)"
_TIME = r"(?:[01]\d|2[0-3]):[0-5]\d:[0-5]\d(?:\.\d{1,9})?(?:Z|[+-](?:[01]\d|2[0-3]):[0-5]\d)"
_ATOM = r"[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+"
_LABEL = r"[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?"
_OCTET = r"(?:25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d)"
_IPV4 = rf"{_OCTET}(?:\.{_OCTET}){{3}}"
_PERCENT = r"%[0-9A-Fa-f]{2}"
_UNRESERVED = r"A-Za-z0-9._~!$&'()*+,;=\-"
_CHARACTER = rf"(?:[{_UNRESERVED}:@]|{_PERCENT})"
_AUTHORITY = rf"(?:(?:[{_UNRESERVED}:]|{_PERCENT})*@)?(?:[{_UNRESERVED}]|{_PERCENT})*(?::\d*)?"
_PATH = rf"(?:/{_CHARACTER}*)*"
_HIERARCHY = rf"(?://{_AUTHORITY}{_PATH}|/(?:{_CHARACTER}+{_PATH})?|{_CHARACTER}+{_PATH})"

FORMATS: Mapping[str, str] = {
    "date": _DATE,
    "time": _TIME,
    "date-time": f"{_DATE}T{_TIME}",
    "uuid": r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}",
    "email": rf"{_ATOM}(?:\.{_ATOM})*@{_LABEL}(?:\.{_LABEL})+",
    "uri": rf"[A-Za-z][A-Za-z0-9+.-]*:{_HIERARCHY}(?:\?(?:{_CHARACTER}|[/?])*)?(?:#(?:{_CHARACTER}|[/?])*)?",
    "ipv4": _IPV4,
    "hostname": rf"{_LABEL}(?:\.{_LABEL})*",
}
"""Format of a string -> pattern that the whole string must match. Sources: RFC 3339 (date, time, date-time), RFC 9562
(uuid), RFC 5321 (email), RFC 3986 (uri), RFC 1123 (hostname); lengths of labels and addresses are not counted."""

NUMBER_FORMATS: Mapping[str, tuple[int, int] | None] = {
    "int32": (-(2**31), 2**31 - 1),
    "int64": (-(2**63), 2**63 - 1),
    "float": None,
    "double": None,
}
"""Format of a number (OpenAPI 3.0) -> its range; None says nothing about the text."""
