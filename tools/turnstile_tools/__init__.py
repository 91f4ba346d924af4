"""Tools and bundled agents for Turnstile, built on its public API only."""
