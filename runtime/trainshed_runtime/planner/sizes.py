"""Numbers as people write and read them: `30B` parameters, `40GiB`, `400Gbit/s`, `312T`.

Units are decimal (GB = 10^9 bytes) unless written as GiB. Errors are ValueError with what was expected.
"""

import re

_NUMBER = re.compile(r"^\s*([0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?)\s*([A-Za-z/]*)\s*$")
_COUNT = {"": 1.0, "K": 1e3, "M": 1e6, "B": 1e9, "G": 1e9, "T": 1e12}
_BYTES = {"": 1.0, "KB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12, "KIB": 2.0**10, "MIB": 2.0**20, "GIB": 2.0**30}
_FLOPS = {"": 1.0, "G": 1e9, "T": 1e12, "P": 1e15}


def count(text: str | int | float) -> int:
    """`30B` → 30_000_000_000."""
    return round(_parse(text, _COUNT, "a number such as 30B or 350M"))


def byte_count(text: str | int | float) -> int:
    """`40GiB` → bytes."""
    return round(_parse(text, _BYTES, "bytes such as 40GiB or 80GB"))


def rate(text: str | int | float) -> float:
    """Arithmetic operations per second: `312T` → 312e12."""
    return _parse(text, _FLOPS, "operations per second such as 312T")


def link(text: str | int | float) -> float:
    """Bytes per second in one direction: `400Gbit/s` → 50e9, `300GB/s` → 300e9."""
    expected = "a link speed such as 400Gbit/s or 300GB/s"
    if isinstance(text, (int, float)):
        return _parse(text, {"": 1.0}, expected)
    bare = re.sub(r"(/s|ps)$", "", text.strip(), flags=re.IGNORECASE)
    bits = {"KBIT": 125.0, "MBIT": 125e3, "GBIT": 125e6, "TBIT": 125e9}
    return _parse(bare, {**{name: factor for name, factor in _BYTES.items() if name}, **bits}, expected)


def shown_count(number: float) -> str:
    """30_000_000_000 → `30 B`."""
    for unit, name in ((1e12, "T"), (1e9, "B"), (1e6, "M"), (1e3, "K")):
        if abs(number) >= unit * 0.9995:
            return f"{_three(number / unit)} {name}"
    return _three(number)


def shown_bytes(number: float) -> str:
    """Three digits in decimal units."""
    for unit, name in ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if abs(number) >= unit * 0.9995:
            return f"{_three(number / unit)} {name}"
    return f"{number:.0f} B"


def shown_seconds(seconds: float) -> str:
    return f"{_three(seconds)} s" if seconds >= 1 else f"{_three(seconds * 1e3)} ms"


def _three(number: float) -> str:
    """Three digits at least, without a fraction of noughts."""
    digits = max(0, 2 - len(str(int(abs(number)))) + 1)
    text = f"{number:.{digits}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def _parse(text: str | int | float, units: dict[str, float], expected: str) -> float:
    if isinstance(text, bool):
        raise ValueError(f"{text!r} is not {expected}")
    if isinstance(text, (int, float)):
        number, unit = float(text), ""
    else:
        match = _NUMBER.match(text)
        if match is None:
            raise ValueError(f"{text!r} is not {expected}")
        number, unit = float(match.group(1)), match.group(2).upper()
    if unit not in units or not 0 <= number < 1e24:
        raise ValueError(f"{text!r} is not {expected}")
    return number * units[unit]
