"""Jobs that examine recorded traffic, and their report: DataFrame in, DataFrame out."""
