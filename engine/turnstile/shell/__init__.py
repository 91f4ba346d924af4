"""The outside, one thing each: models, tools, stores, the log, the clock. Nothing here imports its neighbours."""
