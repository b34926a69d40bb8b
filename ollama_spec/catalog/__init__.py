"""Recipes: name -> target, drafter, projector, speculator, profile."""
