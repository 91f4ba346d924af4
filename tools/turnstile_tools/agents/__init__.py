"""Three agents ready to run: `travel`, `assistant` and `mini`, each with a script that stands in for a model."""
