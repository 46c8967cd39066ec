"""The spaces of timm's families: their sizes, strings and published members, without timm."""

import sys

import numpy as np
import pytest

from archray.errors import InvalidArchitecture, MissingExtra, UnknownName
from archray.trainables.spaces import TimmConvNeXts, TimmResNets, get_space

RESNETS, CONVNEXTS = TimmResNets(), TimmConvNeXts()


def test_sizes_and_distinct_networks():
    assert (RESNETS.size, CONVNEXTS.size) == (92_160, 2_654_208)
    for space in (RESNETS, CONVNEXTS):
        rng = np.random.default_rng(0)
        drawn = {space.sample(rng) for _ in range(500)}
        assert len({space.shape(architecture) for architecture in drawn}) == len(drawn)


def test_published_members_belong_to_the_space():
    text = "block=bottleneck|variant=d|attention=none|width=4|resolution=1|depth_1=3|depth_2=4|depth_3=6|depth_4=3"
    assert RESNETS.encode(RESNETS.published["resnet50d"]) == text
    assert RESNETS.shape(RESNETS.decode(text)) == ("bottleneck", "d", "none", 4.0, 1.0, (3, 4, 6, 3))
    atto = "version=2|width=2.5|resolution=1|depth_1=2|depth_2=2|depth_3=6|depth_4=2"
    assert CONVNEXTS.encode(CONVNEXTS.published["convnextv2_atto"]).startswith(atto)
    for space in (RESNETS, CONVNEXTS):
        for architecture in space.published.values():
            space.check(architecture)


def test_invalid_names_and_strings_raise_an_error():
    assert get_space("timm:resnet") == RESNETS and get_space("timm:convnext") == CONVNEXTS
    with pytest.raises(UnknownName, match=r"no space 'timm:foo'; .*choose one of .*timm:convnext, timm:resnet"):
        get_space("timm:foo")
    with pytest.raises(InvalidArchitecture, match=r"timm:resnet has no choice '5' for width. Choose one of 1, 1\.5"):
        RESNETS.check(("basic", "b", "none", "5", "1", "2", "2", "2", "2"))


def test_networks_without_timm_raise_an_error(monkeypatch):
    monkeypatch.setitem(sys.modules, "timm", None)  # makes the import fail
    with pytest.raises(MissingExtra, match=r"expected the package timm .*pip install '\.\[timm\]'"):
        RESNETS.check_packages()
