"""What is asked: shipped short sets, long documents made on the fly, and the user's files."""

from __future__ import annotations

import functools
import gzip
import json
import operator
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ollama_spec.errors import OllamaSpecError
from ollama_spec.measure.fixtures import corpus

SETS: dict[str, tuple[str, ...]] = {
    "chat": (
        "Why does the sky look blue during the day and red in the evening?",
        "Give me three tips for learning to cook at home.",
        "What is the difference between a river and a canal?",
        "How should I prepare for my first day at a new job?",
        "Explain to a child how a bicycle stays upright.",
        "Is it better to read the book before or after seeing the film?",
        "What should I pack for a weekend of hiking in spring?",
        "How do I politely decline an invitation?",
    ),
    "code": (
        "Write a Python function that returns the n-th Fibonacci number.",
        "Write a Python class for a stack with push, pop and peek.",
        "Write a shell command that counts the lines of all text files in a folder.",
        "Write an SQL query that lists the ten customers with the most orders.",
        "Write a JavaScript function that removes duplicates from an array.",
        "Write a Python script that reads a CSV file and prints the mean of each column.",
        "Write a C function that reverses a string in place.",
        "Write a regular expression for a date such as 2024-05-17 and explain it.",
    ),
    "list": (
        "List the planets of the solar system with one fact about each.",
        "List ten animals that live in the forest.",
        "Name the months of the year and the season each belongs to.",
        "Make a shopping list for a breakfast for four people.",
        "List five European countries with their capitals.",
        "List the steps of making a cup of tea.",
        "Name eight musical instruments and how each is played.",
        "List six tools a carpenter needs and what each is for.",
    ),
    "prose": (
        "Write a short story about a lighthouse keeper who finds a letter.",
        "Describe a market in the early morning.",
        "Write the opening paragraph of a novel set on a train.",
        "Tell a fable about a fox and a river.",
        "Describe the sea during a storm to someone who has never seen it.",
        "Write a letter from a traveller to an old friend.",
        "Write a short story about a clock that runs backwards.",
        "Describe an old house through the eyes of a cat.",
    ),
}


def shipped(name: str, count: int | None = None) -> list[str]:
    if name not in SETS:
        raise OllamaSpecError(
            f"no prompt set {name!r}", hint=f"there are {', '.join(SETS)}, long:N and FILE.jsonl"
        )
    return list(SETS[name][:count])


def mixture(count: int) -> list[str]:
    """`count` prompts, the kinds taking turns."""
    rows = zip(*SETS.values(), strict=True)
    return [prompt for row in rows for prompt in row][:count]


@dataclass(frozen=True)
class Needle:
    """A long document with one fact in it, and the question whose answer is `code`.

    `span`: where in the prompt the fact stands (characters, which are bytes here). An answer that
    begins with `lead` goes on with the code.
    """

    prompt: str
    code: str
    lead: str
    span: tuple[int, int]


def needle(characters: int, depth: float, seed: int) -> Needle:
    """A document of about `characters` with the fact at `depth` (0: start, 1: end)."""
    rng = random.Random(seed)
    body = " ".join(_document(characters, rng))[:characters]
    colour = rng.choice(["blue", "green", "amber", "violet", "scarlet"])
    place = rng.choice(["warehouse", "lighthouse", "library", "greenhouse", "observatory"])
    code = str(rng.randrange(10_000, 100_000))
    fact = f" The secret access code for the {colour} {place} is {code}."
    at = body.rfind(". ", 0, max(1, int(len(body) * depth)))
    at = at + 1 if at >= 0 else 0
    question = f"What is the secret access code for the {colour} {place}?"
    head = f"Document:\n{body[:at]}"
    prompt = f"{head}{fact}{body[at:]}\n\nQuestion: {question}"
    lead = f"The secret access code for the {colour} {place} is"
    return Needle(prompt, code, lead, (len(head), len(head) + len(fact)))


def long_document(characters: int, seed: int) -> str:
    """A request to summarise a document of about `characters`."""
    text = " ".join(_document(characters, random.Random(seed)))[:characters]
    return f"Document:\n{text}\n\nSummarise the document in three sentences."


def _document(characters: int, rng: random.Random) -> Iterator[str]:
    blocks = corpus.paragraphs()
    rng.shuffle(blocks)
    length = 0
    while length < characters:
        for block in blocks:
            yield block
            length += len(block) + 1
            if length >= characters:
                return


_FIELDS = ("prompt", "question", "input", "text", "instruction")


def from_file(path: Path, count: int | None = None) -> list[str]:
    """Prompts of a file: SPEED-Bench, GSM8K, HumanEval, LongBench, RULER and the like.

    JSON lines, gzipped or not, or one JSON array. The prompt is the first known field of a row;
    `turns` and `messages` give their first turn, LongBench's `context` goes before its question.
    """
    opened = gzip.open if path.suffix == ".gz" else open
    with opened(path, "rt", encoding="utf-8") as file:
        text = file.read()
    prompts: list[str] = []
    for number, read in enumerate(_rows(text), 1):
        if count is not None and len(prompts) >= count:
            break
        try:
            prompts.append(_prompt_of(read()))
        except (ValueError, KeyError, TypeError, IndexError):
            raise OllamaSpecError(
                f"{path}: row {number}: no prompt found",
                hint=f"each row is JSON with one of: {', '.join(_FIELDS)}, turns, messages",
            ) from None
    return prompts


def _rows(text: str) -> Iterator[Callable[[], Any]]:
    """One call per row that is not empty, so that a damaged row is named when it is reached."""
    if text.lstrip().startswith("["):
        rows = json.loads(text)
        yield from (functools.partial(operator.getitem, rows, i) for i in range(len(rows)))
        return
    for line in text.splitlines():
        if line.strip():
            yield functools.partial(json.loads, line)


def _prompt_of(row: dict[str, Any]) -> str:
    turns = row.get("turns") or row.get("messages")
    if isinstance(turns, list):
        # A system message before the first question is not what is asked.
        users = [t for t in turns if not isinstance(t, dict) or t.get("role", "user") == "user"]
        first = users[0]
        return _content(first["content"] if isinstance(first, dict) else first)
    known = [key for key in _FIELDS if row.get(key)]
    context = row.get("context")
    if not known and not context:
        raise KeyError("prompt")
    return "\n\n".join(str(part) for part in (context, *(row[key] for key in known[:1])) if part)


def _content(value: Any) -> str:
    """A message's text; a list of parts gives those that are text."""
    if isinstance(value, list):
        return "\n".join(str(part["text"]) for part in value if part.get("type") == "text")
    return str(value)
