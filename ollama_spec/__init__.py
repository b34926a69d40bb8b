"""ollama-spec: faster, honestly measured local inference for Ollama users."""

__version__ = "0.1.0"
