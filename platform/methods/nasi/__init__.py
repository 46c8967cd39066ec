"""NASI: its configuration, stages, presets and figures. Shu 2022, ch. 6."""
