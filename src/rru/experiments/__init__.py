"""Plans for the paper's tables and figures, tools to run them, and hyperparameter search."""
