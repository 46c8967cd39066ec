"""A user's metric that HNAS cannot maximize, and a table that was scored with such a metric."""

import pandas as pd
import pytest

from archray.errors import InvalidInput
from archray.platform.methods import open_run
from archray.platform.methods.configure import check_config, make_config
from archray.platform.methods.plain.tables import searcher_options
from archray.platform.run.run import Run


def test_hnas_rejects_a_metric_that_it_cannot_maximize(tmp_path):
    file = tmp_path / "own.py"
    file.write_text("def loss(network, images, labels):\n    return 1.0\n\n\nloss.direction = 'min'\n")
    with pytest.raises(InvalidInput, match=r"whose large values are good, got .*own.py:loss"):
        check_config(make_config("hnas", "smoke", None, {"proxy": f"{file}:loss"}))


def test_a_table_can_have_any_metric(tmp_path):
    table = tmp_path / "pool.csv"
    architecture = "|nor_conv_3x3~0|+|nor_conv_3x3~0|nor_conv_3x3~1|+|nor_conv_3x3~0|nor_conv_3x3~1|nor_conv_3x3~2|"
    pd.DataFrame({"architecture": [architecture], "mine": [1.0], "kappa": [2.0]}).to_csv(table, index=False)
    for proxy in ("mine", "gone.py:mine"):
        config = make_config("hnas", "smoke", None, {"proxy": proxy, "pool": str(table)})
        check_config(config)
        assert config.references() == {"space": "nasbench201", "data": "digits"}
        assert config.proxy == "mine"
    with pytest.raises(InvalidInput, match="has no column yours; it has architecture, mine, kappa"):
        check_config(make_config("hnas", "smoke", None, {"proxy": "yours", "pool": str(table)}))


@pytest.mark.parametrize(("method", "option"), [("rank-surrogate", "proxies"), ("zero-cost", "proxy")])
def test_a_search_reads_the_direction_from_the_copy_in_the_run(tmp_path, method, option):
    file = tmp_path / "own.py"
    file.write_text("def loss(network, images, labels):\n    return 1.0\n\n\nloss.direction = 'min'\n")
    run = Run.create(str(tmp_path / "run"), make_config(method, "smoke", None, {option: f"{file}:loss"}))
    file.unlink()
    options = searcher_options(open_run(run.folder))
    assert options == ({"proxies": ("-loss",)} if option == "proxies" else {"proxy": "loss", "order": "smallest"})
