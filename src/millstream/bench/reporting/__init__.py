"""From the results of runs to tables, plots, a page, and comparisons."""
