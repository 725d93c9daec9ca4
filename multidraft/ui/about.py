"""Texts that explain: how multi-drafter decoding works, what each kind of drafter does, how to bring one's own pool."""

HOW_IT_WORKS = """
## How it works

A large **target** model writes one token at a time, and each token costs a whole pass through it. A small **drafter**
can guess several tokens ahead at little cost; the target then checks all of them in a single pass, keeps those that
agree with what it would have written, and adds one token of its own. That is a **round**. The output is exactly the
target's; only the speed changes.

One drafter is rarely good at everything. Here several are at hand, and a **policy** learns while the text is being
written which of them to trust. *Play* shows who wrote what; *Race* sets policies side by side on one prompt; *Batch*
measures them on many; *Lab* replays past texts under other policies; *Dashboard* keeps the history; *Pool* shows what
is loaded.

| Term | Meaning |
|---|---|
| MAT | mean accepted tokens: emitted tokens per round, the target's own counted; plain decoding has 1 |
| accepted | accepted tokens ÷ drafted tokens |
| speed-up | tokens per second ÷ those of plain decoding of the same prompt on the same machine |
| regret | rounds more than the best single drafter in hindsight would have needed; negative where switching won |
"""

KINDS = {
    "lm": "small language model",
    "eagle": "EAGLE head: continues the target's hidden states",
    "medusa": "Medusa heads: one for each of the next tokens",
    "bpd": "BPD heads: one for each of the next tokens",
    "dflash": "DFlash: a whole block at once from hidden states",
    "mtp": "the target's own layers for tokens further on",
    "pld": "prompt lookup: copies what followed earlier in the text",
    "suffix": "suffix automaton: what most often followed the same words in the text",
    "rest": "datastore: what most often followed the same words in past text",
    "lookahead": "lookahead: n-grams found by Jacobi iterations of the target",
    "custom": "a drafter of one's own, by a Python file beside the card",
}
"""In a few words."""

YOUR_OWN = """
<h2>A pool of your own</h2>
<p>A pool is a card, a short YAML file that names a target and its drafters, as folders or by their names on the Hugging
Face Hub:</p>
<pre tabindex="0"><code>name: mine
title: My pool
target: {id: Qwen/Qwen2.5-7B-Instruct}
dtype: bfloat16
drafters:
  - {name: small, kind: lm, id: Qwen/Qwen2.5-0.5B-Instruct}
  - {name: lookup, kind: pld}</code></pre>
<p>Start the app with <code>python -m multidraft demo --pool card.yaml</code>, or put cards into a folder and name it in
the environment variable <code>MULTIDRAFT_POOLS</code>: then they are listed above. <code>docs/pools.md</code> has all
kinds and settings.</p>
"""
