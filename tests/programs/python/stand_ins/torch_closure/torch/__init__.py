"""Comes before a PyTorch that is installed, which a folder without this file would not."""
