"""A script of the kind that exists: nothing in it knows of this project but the address in the environment.

It asks for sixteen answers at once, streams every other one, and prints the figures that came with them.
"""

import asyncio
import json
import sys

from openai import AsyncOpenAI


async def ask(client: AsyncOpenAI, number: int, prompt: str) -> dict:
    messages = [{"role": "user", "content": prompt}]
    asked = {"model": "gpt-4o-mini", "messages": messages, "temperature": 0, "max_tokens": 64}
    if number % 2:
        answer = await client.chat.completions.create(**asked)
        return {"text": answer.choices[0].message.content, **answer.metrics["speculative_decoding"]}
    text = ""
    stream = await client.chat.completions.create(**asked, stream=True, stream_options={"include_usage": True})
    async for part in stream:
        text += "".join(choice.delta.content or "" for choice in part.choices)
    return {"text": text, **part.metrics["speculative_decoding"]}


async def main() -> None:
    prompts = json.load(sys.stdin)
    async with AsyncOpenAI(max_retries=0) as client:
        print(json.dumps(await asyncio.gather(*(ask(client, *each) for each in enumerate(prompts)))))


asyncio.run(main())
