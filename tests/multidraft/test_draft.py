"""Drafts as trees."""

import pytest
import torch

from multidraft.draft import Draft

TREE = Draft((5, 6, 7, 8, 9), (-1, -1, 0, 0, 3))


def test_a_chain_is_a_tree_of_width_one():
    chain = Draft.chain([4, 5, 6])
    assert chain == Draft((4, 5, 6), (-1, 0, 1))
    assert chain.is_chain and (len(chain), chain.depth, chain.depths) == (3, 3, (0, 1, 2))
    assert not TREE.is_chain


def test_the_empty_draft():
    assert Draft.empty().is_chain
    assert (len(Draft.empty()), Draft.empty().depth, Draft.empty().children(-1)) == (0, 0, [])


def test_a_tree_s_paths():
    assert (TREE.depth, TREE.depths) == (3, (0, 0, 1, 1, 2))
    assert [TREE.children(node) for node in (-1, 0, 1, 3)] == [[0, 1], [2, 3], [], [4]]
    assert TREE.main_path([]) == [0, 2]
    assert TREE.main_path([0, 3]) == [0, 3, 4]
    assert TREE.main_path([1]) == [1]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (((1, 2), (-1,)), "2 tokens has 1 parents"),
        (((1, 2), (1, -1)), "parent must stand before its child"),
        (((1,), (-2,)), "parent must stand before its child"),
        (((1,), (-1,), None, True), "needs the probabilities q"),
        (((1,), (-1,), torch.ones(2, 3)), "q has 2 rows for 1 tokens"),
    ],
)
def test_malformed_drafts_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        Draft(*arguments)
