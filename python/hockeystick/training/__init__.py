"""A plan fixes what is accounted, a run draws exactly that, a report states it."""
