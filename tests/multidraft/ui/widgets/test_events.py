from multidraft.ui.widgets.events import changes


def test_what_did_not_change_is_not_sent_again() -> None:
    assert changes({1: "a", 2: "b"}, {1: "a", 2: "B", 3: "c"}) == {2: "B", 3: "c"}
