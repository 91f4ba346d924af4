"""Clients of model servers: one transport, one file pair for each wire protocol, and a table of providers."""
