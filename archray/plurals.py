"""Counts with a noun, for the terminal, reports and errors."""


def count(number: float, one: str, many: str | None = None) -> str:
    """Returns a count with a noun: `1 trial`, `8 trials`, `15,625 architectures`, `0.5 GPUs`.

    Args:
        number: the number.
        one: the singular noun.
        many: the plural noun; None: `one` with an s.
    """
    digits = f"{number:g}" if number % 1 else f"{int(number):,}"
    return f"{digits} {one if number == 1 else many or one + 's'}"
