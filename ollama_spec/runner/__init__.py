"""The sidecar: runs patched llama-servers and speaks to clients. Never imports `ollama_spec.build`."""
