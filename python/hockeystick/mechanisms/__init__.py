"""Descriptions of what is released: frozen and cheap, composed with * and +; and their dominating pairs."""
