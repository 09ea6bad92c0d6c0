"""Format numbers for people, in the same way in the terminal, on the page and in Markdown."""

NONE = "\N{EN DASH}"


def score(value: float | None, digits: int = 4) -> str:
    """Format a score or loss; a dash if there is none. Very large values are shortened."""
    if value is None:
        return NONE
    text = f"{value:.{digits}f}" if abs(value) < 1e6 else f"{value:.4g}"
    return text.replace("-", "\N{MINUS SIGN}")


def signed(value: float) -> str:
    """Format a difference with its sign; without a sign if it rounds to zero."""
    text = f"{value:+.2f}".replace("-", "\N{MINUS SIGN}")
    return "0.00" if text[1:] == "0.00" else text


def whole(value: float | None) -> str:
    """Format a count; a dash if there is none."""
    return NONE if value is None else f"{value:,.0f}"


def counted(count: int, what: str) -> str:
    """Format a count and its noun: `1 run`, `2 runs`."""
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def setting(value: object) -> str:
    """Format the value of a setting, shortened: `0.0013`, `300k`, `1.5M`."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value).lower() if isinstance(value, bool) else str(value)
    if value >= 1000:
        return f"{value / 1e6:g}M" if value >= 1e6 else f"{value / 1e3:g}k"
    return f"{value:g}"


def duration(seconds: float | None) -> str:
    """Format a duration: `8.3 s`, `45 s`, `12 min`, `5 h 20 min`, `4.6 days`, `3.2 years`; a dash if there is none."""
    if seconds is None:
        return NONE
    if seconds < 100:
        return f"{seconds:.0f} s" if seconds >= 10 else f"{seconds:.1f} s"
    minutes = round(seconds / 60)
    if minutes < 100:
        return f"{minutes} min"
    if minutes < 2880:
        return f"{minutes // 60} h {minutes % 60} min"
    days = seconds / 86400
    return f"{days:.1f} days" if days < 730 else f"{days / 365:.1f} years"


def clock(seconds: float) -> str:
    """Format a running time: `0:19`, `2:05:33`."""
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02}:{rest:02}" if minutes >= 60 else f"{minutes}:{rest:02}"


def amount(size: int | None) -> str:
    """Format a size in bytes: `3.2 MB`."""
    if size is None:
        return "not stated by its source"
    number = float(size)
    for unit in ("bytes", "kB", "MB"):
        if number < 1000:
            return f"{number:.0f} {unit}" if unit == "bytes" else f"{number:.1f} {unit}"
        number /= 1000
    return f"{number:.1f} GB"
