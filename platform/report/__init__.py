"""The HTML report of a run: the page, its HTML elements, and sections that several methods share."""
