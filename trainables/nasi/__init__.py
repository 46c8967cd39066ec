"""NASI: search at initialisation, by the trace norm of the neural tangent kernel. Shu 2022 (thesis), chapter 6."""
