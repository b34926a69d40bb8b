"""What is asked: shipped short sets, long documents made on the fly, and the user's files."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

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
    """A long document with one fact in it, and the question whose answer is `code`."""

    prompt: str
    code: str


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
    return Needle(f"Document:\n{body[:at]}{fact}{body[at:]}\n\nQuestion: {question}", code)


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
    """Prompts of a JSON-lines file: SPEED-Bench, GSM8K, HumanEval, LongBench, RULER and the like.

    The prompt is the first known field of a line; `turns` and `messages` give their first turn.
    LongBench's `context` goes before its question.
    """
    prompts: list[str] = []
    with path.open(encoding="utf-8") as lines:
        for number, line in enumerate(lines, 1):
            if not line.strip() or (count is not None and len(prompts) >= count):
                continue
            try:
                prompts.append(_prompt_of(json.loads(line)))
            except (ValueError, KeyError, TypeError, IndexError):
                raise OllamaSpecError(
                    f"{path}:{number}: no prompt found",
                    hint=f"each line is JSON with one of: {', '.join(_FIELDS)}, turns, messages",
                ) from None
    return prompts


def _prompt_of(row: dict[str, object]) -> str:
    turns = row.get("turns") or row.get("messages")
    if isinstance(turns, list):
        first = turns[0]
        return str(first["content"] if isinstance(first, dict) else first)
    known = [key for key in _FIELDS if row.get(key)]
    text = str(row[known[0]])
    context = row.get("context")
    return f"{context}\n\n{text}" if context else text
