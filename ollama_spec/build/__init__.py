"""Makes runner binaries: sources, overlay, engines. Never imports `ollama_spec.runner`."""
