"""The HTML report of a run: the page, its pieces, and the sections that several methods show."""
