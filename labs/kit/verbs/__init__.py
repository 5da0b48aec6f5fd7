"""The verbs of labs/lab: their arguments and what they print."""
