"""What a measurement ran on."""

import re

import torch

from drafters.hardware import describe


def test_the_processor_and_its_cores():
    assert re.fullmatch(r".+, \d+ cores", describe("cpu"))
    assert describe(torch.device("cpu")) == describe("cpu")
