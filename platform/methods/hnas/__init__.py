"""HNAS: its configuration, stages, presets and figures. Shu 2022, ch. 7."""
