"""Counts in words, for the terminal, reports and errors."""


def count(number: float, one: str, many: str | None = None) -> str:
    """`1 trial`, `8 trials`, `15 625 architectures`, `0.5 GPUs`. many: where it is not `one` with an s."""
    digits = f"{number:g}" if number % 1 else f"{int(number):,}".replace(",", "\N{NARROW NO-BREAK SPACE}")
    return f"{digits} {one if number == 1 else many or one + 's'}"
