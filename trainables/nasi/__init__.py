"""NASI: search at initialization, by the trace norm of the neural tangent kernel. Shu 2022, chapter 6."""
