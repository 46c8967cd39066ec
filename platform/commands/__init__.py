"""The commands of `archray`: options and printed text. Each calls the public function of its name."""
