"""Texts that explain: how multi-drafter decoding works, what each kind of drafter does, how to bring one's own pool."""

HOW_IT_WORKS = """
<details id="how">
<summary>How it works</summary>
<div>
<p>A large <b>target</b> model writes one token, a piece of a word, at a time, and each costs a whole pass through it.
A small <b>drafter</b> can guess several tokens ahead at little cost. The target then checks all of them in a single
pass, keeps those that agree with what it would have written, and adds one of its own: that is a <b>round</b>. So the
output is exactly the target's; only the speed changes.</p>
<p>One drafter is rarely good at everything. Here several are at hand, and a <b>policy</b> learns while the text is
being written which of them to trust. Each token has the colour of the drafter that guessed it.</p>
<dl>
<dt>Tokens a round</dt><dd>also MAT, mean accepted tokens: how far a round gets, the target's own token counted; 1 in
plain decoding</dd>
<dt>Accepted</dt><dd>accepted tokens ÷ drafted tokens</dd>
<dt>Speed-up</dt><dd>tokens per second ÷ those of plain decoding of the same prompt on the same machine</dd>
<dt>Regret</dt><dd>rounds more than the best single drafter, known in hindsight, would have needed; negative where
switching won</dd>
</dl>
<p><i>Play</i> shows who wrote what; <i>Race</i> sets policies side by side on one prompt; <i>Batch</i> measures them on
many; <i>Lab</i> replays past texts under other policies; <i>Dashboard</i> keeps the history; <i>Pool</i> shows what is
loaded.</p>
</div>
</details>
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
