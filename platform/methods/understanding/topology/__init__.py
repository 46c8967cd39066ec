"""The study of cells by their connections. Shu 2022, chapter 4."""
