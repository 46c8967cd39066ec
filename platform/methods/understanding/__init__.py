"""Studies, which explain and find nothing: their configurations, stages, presets and figures."""
