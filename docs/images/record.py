"""Records commands and their output in a terminal as an SVG image: `python record.py NAME COMMAND...`."""

import io
import re
import subprocess
import sys
from pathlib import Path

from rich._export_format import CONSOLE_SVG_FORMAT
from rich.console import Console
from rich.terminal_theme import MONOKAI
from rich.text import Text

WIDTH = 140
# Without the fonts that rich's format loads from a server.
FORMAT = re.sub(r"@font-face \{\{.*?\}\}\s*", "", CONSOLE_SVG_FORMAT, flags=re.DOTALL).replace("Fira Code", "Menlo")


def record(name: str, commands: list[str]) -> None:
    """Runs commands in a terminal of WIDTH columns, and writes NAME.svg next to this file."""
    console = Console(record=True, width=WIDTH, file=io.StringIO(), force_terminal=True)
    for command in commands:
        console.print(Text(f"$ {command}", style="bold green"))
        terminal = ["script", "--quiet", "--return", "--command", f"stty cols {WIDTH} rows 60; {command}", "/dev/null"]
        output = subprocess.run(terminal, capture_output=True, text=True, check=True, stdin=subprocess.DEVNULL).stdout
        console.print(Text.from_ansi(output.rstrip()))
    console.save_svg(str(Path(__file__).with_name(f"{name}.svg")), title="", theme=MONOKAI, code_format=FORMAT)


if __name__ == "__main__":
    record(sys.argv[1], sys.argv[2:])
