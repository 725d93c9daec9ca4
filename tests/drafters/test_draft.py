"""Drafts as trees."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from drafters.draft import Draft, unite

TREE = Draft((5, 6, 7, 8, 9), (-1, -1, 0, 0, 3))


def test_a_chain_is_a_tree_of_width_one():
    chain = Draft.chain([4, 5, 6])
    assert chain == Draft((4, 5, 6), (-1, 0, 1))
    assert chain.is_chain and (len(chain), chain.depth, chain.depths) == (3, 3, (0, 1, 2))
    assert not TREE.is_chain


def test_the_empty_draft():
    assert Draft.empty().is_chain
    assert (len(Draft.empty()), Draft.empty().depth, Draft.empty().children(-1)) == (0, 0, [])


@pytest.mark.parametrize("array", [list, np.array, torch.tensor])
def test_numbers_of_any_library_are_a_draft(array):
    chain, tree = Draft.chain(array([4, 5])), Draft(array([4, 5, 6]), array([-1, -1, 1]))
    assert (chain, tree) == (Draft((4, 5), (-1, 0)), Draft((4, 5, 6), (-1, -1, 1)))
    assert {type(number) for draft in (chain, tree) for number in (*draft.tokens, *draft.parents)} == {int}


def test_a_tree_s_paths():
    assert (TREE.depth, TREE.depths) == (3, (0, 0, 1, 1, 2))
    assert [TREE.children(node) for node in (-1, 0, 1, 3)] == [[0, 1], [2, 3], [], [4]]
    assert TREE.main_path([]) == [0, 2]
    assert TREE.main_path([0, 3]) == [0, 3, 4]
    assert TREE.main_path([1]) == [1]
    q = torch.eye(5)
    assert TREE.main_chain() == Draft.chain([5, 7])
    assert torch.equal(Draft(TREE.tokens, TREE.parents, q).main_chain().q, q[[0, 2]])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (((1, 2), (-1,)), "2 tokens has 1 parents"),
        (((1, 2), (1, -1)), "parent must stand before its child"),
        (((1,), (-2,)), "parent must stand before its child"),
        (((1,), (-1,), None, True), "needs the probabilities q"),
        (((1,), (-1,), torch.ones(2, 3)), "q has 2 rows for 1 tokens"),
        (((2.5,), (-1,)), "tokens must be whole numbers, got"),
        (((1,), (None,)), "parents must be whole numbers, got"),
    ],
)
def test_malformed_drafts_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        Draft(*arguments)


def test_united_drafts_share_their_paths():
    tree, places, authors = unite([Draft.chain([4, 5, 6]), Draft.chain([4, 7]), Draft.chain([8]), Draft.empty()], 99)
    assert tree == Draft((4, 8, 5, 7, 6), (-1, -1, 0, 0, 2))
    assert places == [[0, 2, 4], [0, 3], [1], []]
    assert authors == [0, 2, 0, 1, 0]


def test_the_budget_of_a_union_goes_to_shallow_nodes_and_to_those_of_more_drafts():
    drafts = [Draft.chain([1, 2, 3]), Draft.chain([4, 5, 6]), Draft.chain([4, 7])]
    tree, places, authors = unite(drafts, 3)
    assert tree == Draft((4, 1, 2), (-1, -1, 1))
    assert places == [[1, 2, None], [0, None, None], [0, None]]
    assert authors == [1, 0, 0]
    assert unite(drafts, 1).draft == Draft((4,), (-1,))


@st.composite
def trees(draw):
    tokens = draw(st.lists(st.integers(0, 3), max_size=8))
    return Draft(tuple(tokens), tuple(draw(st.integers(-1, node - 1)) for node in range(len(tokens))))


def paths(draft, node=-1):
    """Token paths from the root, as sets of tuples."""
    found = set()
    for child in draft.children(node):
        found |= {(draft.tokens[child], *rest) for rest in paths(draft, child) | {()}}
    return found


@given(st.lists(trees(), max_size=4), st.integers(1, 40))
def test_any_union_holds_the_paths_of_its_drafts_as_far_as_the_budget_goes(drafts, nodes):
    tree, places, authors = unite(drafts, nodes)
    every = set().union(*map(paths, drafts))
    assert len(tree) == min(nodes, len(every)) and len(paths(tree)) == len(tree)  # no path stands there twice
    assert paths(tree) <= every
    for index, (draft, where) in enumerate(zip(drafts, places, strict=True)):
        for node, place in enumerate(where):
            if place is None:
                continue
            assert tree.tokens[place] == draft.tokens[node]
            above = draft.parents[node]
            assert tree.parents[place] == (where[above] if above >= 0 else -1)
            assert authors[place] <= index


def test_the_main_path_of_a_union():
    union = unite([Draft.chain([1, 2, 3]), Draft.chain([4, 5]), Draft.chain([4, 7])], 9).main_chain()
    assert union.draft == Draft.chain([4, 5])
    assert (union.places, union.authors) == ([[None, None, None], [0, 1], [0, None]], [1, 1])
