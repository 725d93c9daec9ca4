"""What retrieval finds: drafts of ``pld`` and ``suffix`` beside the rules of two other programs, on texts of six kinds.

    python -m tests.perf.retrieval --problems gsm8k_train.jsonl

The rules of the others are written here from their definitions. Each text is walked through as its rounds would be with
the one drafter, so nothing depends on the machine.
"""

import argparse
import json
import random
import re
import sysconfig
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from transformers import PreTrainedTokenizerBase

from drafters.kinds.pld import PromptLookup
from drafters.kinds.suffix import SuffixDrafter, SuffixEntry
from drafters.pool import Pool, load_pool
from drafters.sampling import SamplingParams
from multidraft.bench.suites import load_suite
from multidraft.bench.table import markdown
from multidraft.engine.decoding import generate

Text = tuple[list[int], list[int]]
"""Token ids of a prompt and of what followed."""
Rule = Callable[[list[int], int], Sequence[int]]
"""From a context and a draft length to a draft."""

MODULES = ("bisect", "colorsys", "copy", "fnmatch", "glob", "heapq", "queue", "sched", "shlex", "textwrap")
LONGEST_FILE, LONGEST_EDIT, DEPTH = 6_000, 1_200, 24


class Node:
    """What follows a text in a tree, and how often it was met."""

    def __init__(self) -> None:
        self.count, self.next = 0, dict[int, Node]()


class Reference:
    """The rule of SuffixDecoding as ArcticInference has it (Oliaro et al. 2024), with the settings of vLLM.

    For each length of a match a draft of the most frequent continuations, of at most so many tokens as the match has,
    up to the first of less probability than ``least``; of these, by the sum of probabilities, the best, of equals that
    of the longest match; and of the request's own tree and that of all answers the better one.
    """

    def __init__(self, past: bool, least: float = 0.1):
        self.past, self.least = past, least
        self.answers = Node()

    def begin(self, prompt: Sequence[int]) -> None:
        """Begin a text."""
        self.own = Node()
        self.ends = list[Node](), list[Node]()
        self.read, self.prompt = 0, len(prompt)

    def draft(self, context: list[int], length: int) -> Sequence[int]:
        """Read what is new, then draft."""
        for place in range(self.read, len(context)):
            for tree, ends in zip((self.own, self.answers), self.ends, strict=True):
                if tree is self.answers and place < self.prompt:
                    continue
                tree.count += 1
                ends[:] = [node.next.setdefault(context[place], Node()) for node in [*ends[1 - DEPTH :], tree]]
                for node in ends:
                    node.count += 1
        self.read = len(context)
        best = self._best(self.own, context[-DEPTH:], length)
        other = self._best(self.answers, context[-DEPTH:], length) if self.past else (0.0, [])
        return (other if other[0] > best[0] else best)[1]

    def _best(self, tree: Node, context: list[int], length: int) -> tuple[float, list[int]]:
        found = 0.0, list[int]()
        for match in range(1, len(context)):
            node = tree
            for token in context[-match:]:
                if token not in node.next:
                    return found
                node = node.next[token]
            draft, joint, score = list[int](), 1.0, 0.0
            while len(draft) < min(length, match) and node.next:
                token = max(node.next, key=lambda token, node=node: node.next[token].count)
                joint *= node.next[token].count / node.count
                if joint < self.least:
                    break
                draft.append(token)
                score, node = score + joint, node.next[token]
            if score >= found[0]:
                found = score, draft
        return found


def library_lookup(context: list[int], length: int, longest: int = 2) -> list[int]:
    """The rule of transformers' prompt lookup: what followed the first occurrence of the longest suffix of at most so
    many tokens, as far as there is any."""
    for n in range(min(longest, len(context) - 1), 0, -1):
        for end in range(n, len(context)):
            if context[end - n : end] == context[-n:]:
                return context[end : end + length]
    return []


def walk(texts: Sequence[Text], begin: Callable[[list[int]], None], rule: Rule, length: int) -> tuple[float, float]:
    """Tokens per round, the target's own included, and drafted tokens per round."""
    tokens = rounds = drafted = 0
    for prompt, output in texts:
        begin(prompt)
        context, place = list(prompt), 0
        while place < len(output):
            draft = list(rule(context, length))
            accepted = 0
            while accepted < len(draft) and output[place + accepted : place + accepted + 1] == [draft[accepted]]:
                accepted += 1
            context.extend(output[place : place + accepted + 1])
            place, rounds, drafted = place + accepted + 1, rounds + 1, drafted + len(draft)
        tokens += len(output)
    return tokens / rounds, drafted / rounds


def texts_of(pool: Pool, problems: Path | None) -> Iterator[tuple[str, list[Text]]]:
    """Texts by kind: the target's answers to the suites, code with a name changed, records as JSON, and answers to
    grade-school problems, of which one helps with the next."""
    params = SamplingParams(max_new_tokens=256, draft_length=pool.draft_length)
    for suite in ("pocket", "copying", "unknown"):
        asked = [pool.encode(item.prompt) for item in load_suite(suite).items]
        policy = f"fixed:{pool.drafters[0].name}"
        answers = [generate(pool, item.prompt, policy, params).token_ids for item in load_suite(suite).items]
        yield suite, [(prompt, list(answer)) for prompt, answer in zip(asked, answers, strict=True)]
    tokenizer = pool.tokenizer
    yield "code edits", list(edits(tokenizer))
    if problems is None:
        return
    lines = problems.read_text(encoding="utf-8").splitlines()[:60]
    rows = [json.loads(line) for line in lines]

    def ids(text: str) -> list[int]:
        return list(tokenizer.encode(text, add_special_tokens=False))

    parts = [rows[i : i + 6] for i in range(0, len(rows), 6)]
    yield (
        "JSON",
        [
            (
                ids("As JSON:\n" + "\n".join(f"{row['question']} {row['answer'].split()[-1]}" for row in part) + "\n"),
                ids(
                    json.dumps([{"question": r["question"], "result": r["answer"].split()[-1]} for r in part], indent=1)
                ),
            )
            for part in parts
        ],
    )
    yield "problems", [(ids(row["question"] + "\n"), ids(row["answer"])) for row in rows]


def edits(tokenizer: PreTrainedTokenizerBase) -> Iterator[Text]:
    """Modules of the standard library, and the same with a name changed and three pairs of lines left out."""
    rng = random.Random(0)
    for module in MODULES:
        code = (Path(sysconfig.get_path("stdlib")) / f"{module}.py").read_text(encoding="utf-8")[:LONGEST_FILE]
        words = re.findall(r"\b[a-z_]{4,}\b", code)
        name = rng.choice(sorted({word for word in words if words.count(word) > 2}))
        lines = re.sub(rf"\b{name}\b", f"new_{name}", code).split("\n")
        for _ in range(3):
            place = rng.randrange(len(lines))
            del lines[place : place + 2]
        prompt, edited = (
            tokenizer.encode(text, add_special_tokens=False) for text in (f"Rename:\n{code}\n", "\n".join(lines))
        )
        yield list(prompt), list(edited)[:LONGEST_EDIT]


def rules() -> Iterator[tuple[str, Callable[[list[int]], None], Rule]]:
    """Name, what begins a text, and the rule, of each."""
    for longest in (2, 3):
        yield f"transformers, {longest} tokens", lambda _: None, lambda c, k, n=longest: library_lookup(c, k, n)
    lookup = PromptLookup()
    yield "`pld`", lookup.prepare, lambda context, length: lookup.draft(context, length).tokens
    entry = SuffixEntry(name="suffix", kind="suffix")
    for past in (False, True):
        known = ", past answers" if past else ""
        reference, suffix = Reference(past), SuffixDrafter("suffix", None, past * entry.past, entry.confidence)
        yield f"ArcticInference{known}", reference.begin, reference.draft
        yield f"`suffix`{known}", suffix.prepare, lambda c, k, drafter=suffix: drafter.draft(c, k).tokens


def main(arguments: Sequence[str] | None = None) -> None:
    """Walk through all texts by all rules, and print the table."""
    parser = argparse.ArgumentParser(prog="python -m tests.perf.retrieval", description=__doc__.partition("\n")[0])
    parser.add_argument("--problems", type=Path, help="GSM8K's problems as JSON lines, for JSON and past answers")
    parser.add_argument("--draft-length", type=int, default=8)
    parser.add_argument("--limit", type=int, help="texts of each kind")
    parser.add_argument("--pool", default="pocket")
    options = parser.parse_args(arguments)
    texts = dict(texts_of(load_pool(options.pool), options.problems))
    rows = []
    for name, begin, rule in rules():
        found = [walk(some[: options.limit], begin, rule, options.draft_length) for some in texts.values()]
        rows.append([name, *(f"{tokens:.2f} ({drafted:.1f})" for tokens, drafted in found)])
    print(markdown(["tokens per round (drafted)", *texts], rows))


if __name__ == "__main__":
    main()
