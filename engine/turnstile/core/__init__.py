"""The pure heart of Turnstile: values in, values out; no clock, no network, no files, no tasks."""
