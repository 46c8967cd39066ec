"""Methods compared on a table of results: `archray bench`, and what its metrics are worth: `archray bench proxies`."""
