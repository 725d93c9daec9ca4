"""The endpoints for programs, over the wire."""

from __future__ import annotations

import pytest
from gradio_client import Client
from gradio_client.exceptions import AppError


@pytest.fixture(scope="module")
def client(address: str) -> Client:
    return Client(address, verbose=False)


def test_generate(client: Client) -> None:
    prompt = "List what is known, then calculate. A box holds 12 eggs. How many are in 5 boxes?"
    report = client.predict(prompt, policy="fixed:lookup", max_new_tokens=12, api_name="/generate")
    plain = client.predict(prompt, policy="autoregressive", max_new_tokens=12, api_name="/generate")
    assert report["text"] == plain["text"] and report["tokens"] == plain["tokens"] > 0
    assert plain["mean_accepted_tokens"] == 1.0


def test_a_bad_policy_is_refused_with_the_valid_names(client: Client) -> None:
    with pytest.raises(AppError, match=r"choose one of.*normal-hedge"):
        client.predict("Add 2 and 3.", policy="nonsense", api_name="/generate")


def test_batch(client: Client) -> None:
    report = client.predict(["Add 2 and 3.", ""], ["ucb"], max_new_tokens=6, api_name="/batch")
    assert [row["status"] for row in report["rows"]][1] == "error"
    assert report["summary"][0]["prompts"] == 2


def test_what_the_page_does_is_not_offered_to_programs(client: Client) -> None:
    assert set(client.view_api(return_format="dict", print_info=False)["named_endpoints"]) == {"/generate", "/batch"}
