"""`python -m ollama_spec` is the same program as `ollama-spec`."""

from ollama_spec.cli import main

if __name__ == "__main__":
    main()
