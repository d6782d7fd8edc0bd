"""Drawing batches, and who owns which example."""
