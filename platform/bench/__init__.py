"""Comparison of methods on a table of results (`archray bench`), and of its metrics (`archray bench proxies`)."""
