"""Bad input: one paragraph, exit code 2, before Ray starts."""

import contextlib
import io
import json
import subprocess
import sys
from pathlib import Path

import pytest

SEARCH = ("search", "hnas", "--preset", "smoke", "--out", "run")
NASI = ("search", "nasi", "--preset", "smoke", "--out", "run")
MAPS = ("search", "halving", "--preset", "smoke", "--out", "run")


CASES: list[tuple[tuple[str, ...], str]] = [
    (("search", "hmas"), "no method 'hmas'; did you mean 'hnas'? choose one of asha,"),
    ((*SEARCH, "--space", "nasbench301"), "no space 'nasbench301'"),
    ((*SEARCH, "--data", "cifar11"), "cifar11"),
    ((*SEARCH, "--proxy", "ntk_trase"), "no proxy 'ntk_trase'"),
    ((*SEARCH, "--proxy", "absent.py:metric"), "absent.py, which does not exist"),
    ((*SEARCH, "--proxy", "metric.py:absent"), "'metric.py' has no 'absent'; it has metric, kappa"),
    ((*SEARCH, "--proxy", "metric.py:metric"), "a function of network, images and labels, got metric(network)"),
    ((*SEARCH, "--proxy", "metric.py:kappa"), "the column 'kappa' of the pool"),
    ((*SEARCH, "--budget", "0"), "search.budget"),
    ((*SEARCH, "--data", "cifar10", "--data-dir", "empty"), "cifar10"),
    ((*SEARCH, "--data", "folder:empty"), "empty"),
    ((*SEARCH, "--config", "misspelt.toml"), "did you mean 'train.epochs'"),
    ((*SEARCH, "--config", "absent.toml"), "no configuration file"),
    ((*SEARCH, "--set", "train.lr"), "key.of.the.option=value"),
    ((*SEARCH, "--space", "absent.py:Space"), "does not exist"),
    (("search", "hnas", "--preset", "smoke", "--out", "taken"), "not empty"),
    (("search", "hnas", "--preset", "smoke", "--out", "finished"), "archray resume"),
    ((*SEARCH, "--address", "ray://head:10001"), "archray submit"),
    ((*SEARCH, "--space", "fourier"), "its architectures are feature maps, not networks"),
    (
        ("search", "nesbs", "--space", "fourier"),
        "feature maps, not networks; choose darts, darts-none, nasbench1shot1-1",
    ),
    (
        ("search", "gaea-darts", "--space", "space.py:Own"),
        "it has no supernet; choose darts, darts-none, nasbench1shot",
    ),
    ((*NASI, "--agreement", "1"), "expected an agreement of 3 architectures or more, or 0 for none, got 1"),
    ((*NASI, "--mu", "-1"), "nasi.mu"),
    ((*NASI, "--labels", "noise"), "nasi.labels"),
    ((*NASI, "--space", "fourier"), "feature maps, not networks; choose darts, darts-none, nasbench1shot1-1"),
    ((*SEARCH, "--data", "docstrings"), "nasbench201 is for images, and docstrings holds text"),
    ((*MAPS, "--space", "nasbench201"), "it is no space of feature maps; choose fourier or ngrams"),
    ((*MAPS, "--space", "ngrams"), "ngrams is for text, and digits holds images; choose --data docstrings"),
    ((*MAPS, "--candidates", "1"), "candidates: Input should be greater than or equal to 2"),
    ((*MAPS, "--epochs", "3"), "No such option: --epochs"),
    (("search", "hyperband", "--out", "run", "--dimension", "32"), "need a dimension of 64 or more, got 32"),
    (("compare", "absent"), "holds no run"),
    (("resume", "empty"), "holds no run"),
    (("show", "absent"), "holds no run"),
    (("show", "finished"), "none of archray's"),
    (("list", "colours"), "choose one of spaces"),
    ((*SEARCH, "--set", "train.lr=[1"), "train.lr"),
    ((*SEARCH, "--set", "train.lr=1e400"), "train.lr: Input should be a finite number"),
    ((*SEARCH, "--budget", "100000000000000000000"), "search.budget"),
    ((*SEARCH, "--config", "numbers.yaml"), "train.1"),
    ((*SEARCH, "--config", "space.yaml"), "space: expected"),
    ((*SEARCH, "--space", "broken.py:Space"), "broken.py, line 2"),
    ((*SEARCH, "--space", "space.py:Ambiguous"), "'a=b'"),
    (("proxies", "--space", "fourier"), "feature maps, not networks"),
    (("proxies", "--data", "docstrings"), "docstrings holds text"),
    (("proxies", "--space", "nasbench2"), "no space"),
    (("proxies", "--metrics", "kapa"), "no proxy"),
    (
        ("proxies", "--metrics", "snip,metric.py:metric"),
        "a function of network, images and labels, got metric(network)",
    ),
    (("proxies", "--size", "0"), "size"),
    (("proxies", "--size", "20000"), "a pool of 20000 is too large"),
    ((*SEARCH, "--pool-size", "20000"), "a pool of 20000 is too large"),
    ((*SEARCH, "--pool", "absent.parquet"), "there is no pool"),
    (("proxies", "--out", "taken/file"), "exists already"),
    # The last one loads more: the data, for their size, and what a solve holds in memory.
    ((*MAPS, "--dimension", "500000", "--set", "solve.memory_gib=0.001"), "give more memory_gib or fewer features"),
]
SPACE = """from archray.trainables.spaces import Decision, Space

class Own(Space):
    name, decisions = "own", (Decision("layer", ("wide", "narrow")),)

class Ambiguous(Space):
    name, decisions = "ambiguous", (Decision("a=b", ("wide", "narrow")),)
"""
HEAVY = {"torch", "ray", "sklearn", "scipy", "pandas", "pyarrow", "matplotlib"}  # a second or more, all together ten


def run_all_cases() -> None:
    """Runs every case in this process, a fresh one, and prints what came of each as JSON."""
    from archray.platform.cli import main

    told = []
    for arguments, _ in CASES:
        sys.argv = ["archray", *arguments]
        errors, code = io.StringIO(), None
        with contextlib.redirect_stderr(errors), contextlib.redirect_stdout(io.StringIO()):
            try:
                main()
            except SystemExit as stop:
                code = stop.code
        left = sorted(str(path) for path in Path().rglob("*"))
        told.append(
            {"code": code, "error": errors.getvalue(), "loaded": sorted(HEAVY & set(sys.modules)), "files": left}
        )
    print(json.dumps(told))


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory):
    folder = tmp_path_factory.mktemp("bad_input")
    for name in ("empty", "taken", "finished"):
        (folder / name).mkdir()
    (folder / "taken" / "file").write_text("kept")
    (folder / "finished" / "manifest.json").write_text("{}")
    (folder / "metric.py").write_text("def metric(network):\n    return 1.0\n\n\nkappa = metric\n")
    (folder / "space.py").write_text(SPACE)
    (folder / "numbers.yaml").write_text("train: {1: 2}")
    (folder / "space.yaml").write_text("space: 3")
    (folder / "broken.py").write_text("import sys\nsys.absent\n")
    (folder / "misspelt.toml").write_text("[train]\nepoch = 3\n")
    before = sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))
    run = subprocess.run(
        [sys.executable, "-c", "import runpy, sys; runpy.run_path(sys.argv[1])['run_all_cases']()", __file__],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert run.returncode == 0, run.stderr
    assert (folder / "taken" / "file").read_text() == "kept"
    return before, json.loads(run.stdout)


@pytest.mark.parametrize("case", range(len(CASES)), ids=[" ".join(arguments) for arguments, _ in CASES])
def test_one_paragraph_and_exit_code_2(outcomes, case):
    before, told = outcomes
    outcome, said = told[case], CASES[case][1]
    assert outcome["code"] == 2, outcome["error"]
    assert said in outcome["error"]
    by_typer = outcome["error"].startswith("Usage:")  # of an option that the command has not: its own box
    assert "Traceback" not in outcome["error"]
    assert by_typer or len(outcome["error"].strip().splitlines()) == 1
    if case < len(CASES) - 1:
        assert outcome["loaded"] == [], "a refusal takes less than a second"
    assert outcome["files"] == before, "nothing was written, nothing was lost"
