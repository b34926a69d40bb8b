"""A source tree that is switched between "stock" and "with overlay" by rewriting a few files.

Both kinds share one build tree, so going from one to the other recompiles only what hooks touch.
The pristine text of every file ever changed is kept beside the tree; a file whose text does not
change keeps its time stamp, which is what makes the next build incremental.

<root>/src/        the tree      <root>/pristine/   first texts      <root>/source.json   identity
"""

from __future__ import annotations

from pathlib import Path

from ollama_spec import paths
from ollama_spec.build import compat
from ollama_spec.build import overlay as overlays


class WorkTree:
    def __init__(self, root: Path) -> None:
        self.root = root
        self.src = root / "src"
        self._pristine = root / "pristine"

    def pristine(self, file: str) -> str | None:
        """Text of `file` before any hook, or None when the tree lacks it."""
        for path in (self._pristine / file, self.src / file):
            if path.is_file():
                return path.read_text(encoding="utf-8", errors="surrogateescape")
        return None

    def make_stock(self) -> None:
        self._write({})

    def apply(self, folder: Path, tag: str, compat_folder: Path | None = None) -> None:
        """Ollama's compat layer if given, then the hooks of `folder`; all or nothing."""
        below = compat.plan(compat_folder, self.pristine) if compat_folder else {}

        def read(file: str) -> str | None:
            return below.get(file) or self.pristine(file)

        texts = {**below, **overlays.plan(overlays.load(folder), tag, read)}
        if compat_folder:
            for source in compat.code_files(compat_folder):
                place = self.src / compat.FOLDER / source.relative_to(compat_folder)
                _write_if_changed(place, source.read_bytes())
        for source in overlays.code_files(folder):
            target = self.src / overlays.FOLDER / source.name
            _write_if_changed(target, source.read_bytes())
        self._write(texts)

    def _write(self, texts: dict[str, str]) -> None:
        for file, text in texts.items():
            kept = self._pristine / file
            if not kept.exists() and (self.src / file).is_file():
                paths.atomic_write(kept, (self.src / file).read_bytes())
            _write_if_changed(self.src / file, text.encode("utf-8", "surrogateescape"))
        if not self._pristine.is_dir():
            return
        for kept in sorted(path for path in self._pristine.rglob("*") if path.is_file()):
            file = kept.relative_to(self._pristine).as_posix()
            if file not in texts:
                _write_if_changed(self.src / file, kept.read_bytes())


def _write_if_changed(path: Path, data: bytes) -> None:
    if not path.is_file() or path.read_bytes() != data:
        paths.atomic_write(path, data)
