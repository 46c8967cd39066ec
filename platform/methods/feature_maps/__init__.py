"""What the methods that select a feature map share. Khodak et al. 2020, section 2 and appendix B."""
