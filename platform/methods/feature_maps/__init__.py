"""Searches for a feature map: configuration, stages and figures. Khodak et al. 2020, section 2 and appendix B."""
