"""The sidecar: runs patched llama-servers, speaks to clients. Never imports `build`."""
