"""Matrix mechanisms: strategy matrices, participation schemes, correlated noise, BandMF."""
