"""The model hub: what a repository holds, which file has which role, and how it gets here whole."""
