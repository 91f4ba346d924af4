"""The engine: LLM agents whose loop is an explicit finite state machine."""
