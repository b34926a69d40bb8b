"""The Modelfile language: syntax, parser, writer, and the rules for pairing target and drafter."""
