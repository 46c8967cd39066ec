"""Commands of `archray`: options and printed text. Each command calls the public function with its name."""
