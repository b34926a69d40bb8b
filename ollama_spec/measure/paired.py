"""The paired task of the quality gate: the same questions to plain decoding and to a rule.

Only questions that one answers right and the other wrong tell them apart, so the test is McNemar's
(ALGORITHMS 1.7). The questions shipped are made on the fly; a GSM8K file asks harder ones.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import comb
from pathlib import Path
from typing import Any

from ollama_spec.errors import OllamaSpecError
from ollama_spec.measure.client import Client

_SIGNIFICANT = 0.05
_NAMES = ("Anna", "Ben", "Clara", "David", "Emma", "Felix", "Greta", "Hugo", "Ida", "Jonas")
_CITIES = ("Rome", "Paris", "Oslo", "Vienna", "Madrid", "Lisbon", "Dublin", "Prague", "Athens")
_WORK = ("baker", "teacher", "nurse", "farmer", "painter", "driver", "lawyer", "tailor")
_NUMBER = re.compile(r"-?\d[\d,]*(?:\.\d+)?")


@dataclass(frozen=True)
class Task:
    """`answer`: a number is compared with the last number said, a word must occur."""

    question: str
    answer: str

    def solved_by(self, text: str) -> bool:
        if not _NUMBER.fullmatch(self.answer):
            return self.answer.lower() in text.lower()
        said = _NUMBER.findall(text)
        return bool(said) and _value(said[-1]) == _value(self.answer)


def _value(number: str) -> float:
    return float(number.replace(",", ""))


@dataclass(frozen=True)
class Score:
    """`gained`: wrong in plain decoding and right with the rule; `lost`: the other way round."""

    asked: int
    plain_right: int
    rule_right: int
    gained: int
    lost: int

    @property
    def p_value(self) -> float:
        """McNemar's exact test, two-sided: chance of so uneven a split if neither is better."""
        n, less = self.gained + self.lost, min(self.gained, self.lost)
        return min(1.0, 2 * sum(comb(n, k) for k in range(less + 1)) / 2**n) if n else 1.0

    @property
    def worse(self) -> bool:
        return self.lost > self.gained and self.p_value < _SIGNIFICANT


def facts(count: int, seed: int = 1) -> list[Task]:
    """Questions whose answer stands in the text before them."""
    rng = random.Random(seed)
    made = []
    for _ in range(count):
        people = rng.sample(_NAMES, 4)
        lives = dict(zip(people, rng.sample(_CITIES, 4), strict=True))
        works = dict(zip(people, rng.sample(_WORK, 4), strict=True))
        text = " ".join(f"{who} lives in {lives[who]} and is a {works[who]}." for who in people)
        who = rng.choice(people)
        ask, answer = rng.choice(
            [(f"In which city does {who} live?", lives[who]),
             (f"What is the job of {who}?", works[who])]
        )  # fmt: skip
        made.append(Task(f"{text}\n\n{ask} Answer in one sentence.", answer))
    return made


def from_file(path: Path, count: int) -> list[Task]:
    """GSM8K: JSON lines of `question` and an `answer` that ends in `#### NUMBER`."""
    made: list[Task] = []
    with path.open(encoding="utf-8") as lines:
        for number, line in enumerate(lines, 1):
            if len(made) == count:
                break
            try:
                row = json.loads(line)
                answer = str(row["answer"]).rsplit("####", 1)[-1].strip()
                made.append(Task(str(row["question"]), answer))
            except (ValueError, KeyError, TypeError) as error:
                raise OllamaSpecError(
                    f"{path}:{number}: no question with an answer",
                    hint='each line is JSON like {"question": "...", "answer": "... #### 18"}',
                ) from error
    return made


def compare(
    plain: Client, client: Client, tasks: Sequence[Task], options: dict[str, Any],
    note: Callable[[str], None],
) -> Score:  # fmt: skip
    """Both answer every question greedily; `options` go with those of `client`."""

    limit = 300 if any(_NUMBER.fullmatch(task.answer) for task in tasks) else 32
    right = []
    for index, task in enumerate(tasks):
        prompt = client.render(task.question)
        texts = [
            plain.ask(prompt, limit, temperature=0).text,
            client.ask(prompt, limit, temperature=0, **options).text,
        ]
        right.append([task.solved_by(text) for text in texts])
        if (index + 1) % 25 == 0:
            note(f"paired task: {index + 1} of {len(tasks)}")
    return Score(
        asked=len(tasks),
        plain_right=sum(pair[0] for pair in right),
        rule_right=sum(pair[1] for pair in right),
        gained=sum(pair[1] and not pair[0] for pair in right),
        lost=sum(pair[0] and not pair[1] for pair in right),
    )
