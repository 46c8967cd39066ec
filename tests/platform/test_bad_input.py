"""Bad input: one paragraph, exit code 2, before Ray starts."""

import contextlib
import io
import json
import math
import os
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import archray
from archray.errors import InvalidInput

SEARCH = ("search", "hnas", "--preset", "smoke", "--out", "run")
NASI = ("search", "nasi", "--preset", "smoke", "--out", "run")
MAPS = ("search", "halving", "--preset", "smoke", "--out", "run")


LONG = "n" * 300
TABLE = ("--table", "table.csv", "--budget", "2")
LIGHT: list[tuple[tuple[str, ...], str]] = [
    (("search", "hmas"), "no method 'hmas'; did you mean 'hnas'? choose one of asha,"),
    ((*SEARCH, "--space", "nasbench301"), "no space 'nasbench301'"),
    ((*SEARCH, "--data", "cifar11"), "cifar11"),
    ((*SEARCH, "--proxy", "ntk_trase"), "no proxy 'ntk_trase'"),
    ((*SEARCH, "--proxy", "absent.py:metric"), "absent.py, which does not exist"),
    ((*SEARCH, "--proxy", "metric.py:absent"), "'metric.py' has no 'absent'; it has metric, kappa"),
    ((*SEARCH, "--proxy", "metric.py:metric"), "a function of network, images and labels, got metric(network)"),
    ((*SEARCH, "--proxy", "metric.py:kappa"), "its column 'kappa' is reserved"),
    ((*SEARCH, "--budget", "0"), "search.budget"),
    ((*SEARCH, "--set", "train=3"), "train: Input should be a group of options, keys and values, got 3"),
    (("proxies", "--set", "metrics=[]", "--out", "new.parquet"), "expected at least one metric"),
    ((*SEARCH, "--set", "data.limit=1"), "at least proxies.batch_size (16)"),
    ((*SEARCH, "--data", "cifar10", "--data-dir", "empty"), "cifar10"),
    ((*SEARCH, "--data", "folder:empty"), "empty"),
    ((*SEARCH, "--config", "misspelled.toml"), "did you mean 'train.epochs'"),
    ((*SEARCH, "--config", "absent.toml"), "no configuration file"),
    ((*SEARCH, "--set", "train.lr"), "expected KEY=VALUE"),
    ((*SEARCH, "--space", "absent.py:Space"), "does not exist"),
    (("search", "hnas", "--preset", "smoke", "--out", "taken"), "not empty"),
    (("search", "hnas", "--preset", "smoke", "--out", "finished"), "archray resume"),
    ((*SEARCH, "--address", "ray://head:10001"), "archray submit"),
    ((*SEARCH, "--space", "fourier"), "its architectures are feature maps, not networks"),
    (
        ("search", "nesbs", "--space", "fourier"),
        "feature maps, not networks. Choose darts, darts-none, nasbench1shot1-1",
    ),
    (
        ("search", "gaea-darts", "--space", "space.py:Own"),
        "it has no supernet. Choose darts, darts-none, nasbench1shot",
    ),
    (
        (*SEARCH, "--space", "space.py:Unbuilt"),
        "its class Unbuilt has no method build. Add build(architecture, *, in_channels",
    ),
    ((*NASI, "--agreement", "1"), "expected agreement to be at least 3 architectures, or 0 for none, got 1"),
    ((*NASI, "--mu", "-1"), "nasi.mu"),
    ((*NASI, "--labels", "noise"), "nasi.labels"),
    ((*NASI, "--space", "fourier"), "feature maps, not networks. Choose darts, darts-none, nasbench1shot1-1"),
    ((*SEARCH, "--data", "docstrings"), "expected images as data for nasbench201, got docstrings"),
    ((*MAPS, "--space", "nasbench201"), "it is not a space of feature maps. Choose fourier or ngrams"),
    ((*MAPS, "--space", "ngrams"), "got digits, which contains images. Choose --data docstrings"),
    ((*MAPS, "--candidates", "1"), "candidates: Input should be greater than or equal to 2"),
    ((*MAPS, "--epochs", "3"), "No such option: --epochs"),
    (
        ("search", "hyperband", "--out", "run", "--dimension", "32"),
        "a dimension of at least 64 for 4 rungs with eta 4, got 32",
    ),
    (("compare", "absent"), "expected the folder of a run"),
    (("resume", "empty"), "expected the folder of a run"),
    (("show", "absent"), "expected the folder of a run"),
    (("show", "finished"), "a file of another program"),
    (("list", "colors"), "expected one of spaces"),
    ((*SEARCH, "--set", "train.lr=[1"), "train.lr"),
    ((*SEARCH, "--set", "train.lr=1e400"), "train.lr: Input should be a finite number"),
    ((*SEARCH, "--budget", "100000000000000000000"), "search.budget"),
    ((*SEARCH, "--config", "numbers.yaml"), "train.1"),
    ((*SEARCH, "--config", "space.yaml"), "expected space to be a name"),
    ((*SEARCH, "--space", "broken.py:Space"), "broken.py, line 2"),
    ((*SEARCH, "--space", "space.py:Ambiguous"), "'a=b'"),
    (("proxies", "--space", "fourier"), "feature maps, not networks"),
    (("proxies", "--data", "docstrings"), "docstrings, which contains text"),
    (("proxies", "--space", "nasbench2"), "no space"),
    (("proxies", "--proxies", "kapa"), "no proxy"),
    (
        ("proxies", "--proxies", "snip,metric.py:metric"),
        "a function of network, images and labels, got metric(network)",
    ),
    (("proxies", "--size", "0"), "size"),
    ((*SEARCH, "--pool", "absent.parquet"), "absent.parquet, which does not exist. Pass a table"),
    (("proxies", "--out", "taken/file"), "exists already"),
    ((*SEARCH, "--space", "leaves.py:Space"), "cannot be imported: SystemExit: bye ("),
    ((*SEARCH, "--data", "leaves.py:data"), "leaves.py, line 2)"),
    ((*SEARCH, "--proxy", "leaves.py:metric"), "leaves.py, line 2)"),
    ((*SEARCH, "--space", "calls.py:Leaves"), "'calls.py:Leaves' failed when archray called it: SystemExit ("),
    ((*SEARCH, "--space", "calls.py:Fails"), "calls.py, line 20)"),
    (("search", "random", "--out", ""), "a path or a URI of visible characters, got ''"),
    (("search", "random", "--out", "a\tb"), "got 'a\\tb'"),
    (("search", "random", "--out", "loop"), "got 'loop' (Too many levels of symbolic links)"),
    (("search", "random", "--out", LONG), "File name too long"),
    (("search", "random", "--out", "~nobody-here/run"), "there is no such user"),
    (("search", "random", "--out", "taken/file"), "expected a folder, got the file"),
    (("search", "random", "--out", "taken/file/run"), "taken/file, got a file. Remove or rename it"),
    ((*SEARCH, "--data", "folder:loop"), "Too many levels"),
    ((*SEARCH, "--data", f"arrays:{LONG}"), "File name too long"),
    ((*SEARCH, "--data", "cifar10", "--data-dir", LONG), "File name too long"),
    ((*SEARCH, "--pool", LONG), "File name too long"),
    ((*SEARCH, "--space", f"table:{LONG}"), "File name too long"),
    ((*SEARCH, "--space", f"{LONG}.py:Space"), "File name too long"),
    ((*SEARCH, "--config", f"{LONG}.yaml"), "File name too long"),
    (("show", ""), "got ''"),
    (("show", "loop"), "Too many levels"),
    (("runs", "taken/file"), "there is no folder"),
    (("export", LONG), "File name too long"),
    (("proxies", "--out", ""), "got ''"),
    (("proxies", "--out", "s3://bucket/pool.parquet"), "a path on this machine"),
    (("compare", "finished", "--out", "loop"), "Too many levels"),
    (("compare", "absent", "--out", "new.pdf"), "a name that ends in .html, got new.pdf"),
    ((*SEARCH, "--time-budget-s", "-5"), "time_budget_s: expected a number of seconds above 0, got -5"),
    ((*SEARCH, "--time-budget-s", "nan"), "above 0, got nan"),
    ((*SEARCH, "--config", "empty"), "expected a configuration file, got the folder empty"),
    ((*SEARCH, "--config", "null.json"), "expected keys and values at the top level"),
    ((*SEARCH, "--config", "twice.json"), "the key 'seed' occurs more than once"),
    ((*SEARCH, "--config", "twice.yaml"), "the key 'lr' occurs more than once"),
    ((*SEARCH, "--set", "seed=true"), "seed: Input should be a number, got True"),
    ((*SEARCH, "--set", "train.lr=true"), "train.lr: Input should be a number, got True"),
    ((*SEARCH, "--space", "space.py"), "did you mean 'space.py:NAME'"),
    ((*SEARCH, "--data", "arrays:empty"), "empty, got a folder"),
    (("search", "random", "--out", "run-of-another/sub/sub"), "got one in the run "),
    (("search", "robot", "--out", "run", "--proxies", "snip,snip"), "expected distinct metrics, got snip, snip"),
    (("proxies", "--proxies", "snip,snip"), "expected distinct metrics, got snip, snip"),
    (("proxies", "--out", "pool.txt"), "a name that ends in .parquet, got pool.txt"),
    ((*SEARCH, "--weights", "absent.pt"), "expected a file of torch.save as network.weights, got "),
    ((*SEARCH, "--cost-on", '{"CPU": 1}'), 'expected custom resources of a device such as {"raspberry": 1}'),
    *(
        ((*SEARCH, "--dry-run", *options), message)
        for options, message in [
            (("--time-budget-s", "nan"), "above 0, got nan"),
            (("--time-budget-s", "inf"), "above 0, got inf"),
            (("--time-budget-s", "-5"), "above 0, got -5"),
            (("--weights", "absent.pt"), "network.weights"),
            (("--cost-on", "{}"), "expected custom resources of a device"),
            (("--data", "folder:empty"), "two or more class folders"),
            (("--out", "taken/file/run"), "taken/file, got a file. Remove or rename it"),
        ]
    ),
]
# These cases load more modules: they read tables, open an object store, or need the data or their size.
HEAVY_CASES: list[tuple[tuple[str, ...], str]] = [
    (("search", "random", "--out", "ftp://place/run"), "a path or a URI such as s3://bucket/run, got ftp://"),
    (("search", "random", "--out", "s3://"), "Name a bucket"),
    (("bench", "random", *TABLE, "--out", "s3://"), "Name a bucket"),
    (("bench", "random", *TABLE, "--out", "taken/file"), "taken/file, got a file. Remove or rename it"),
    (("bench", "random", *TABLE, "--out", "loop"), "Too many levels"),
    (("bench", "import", "table.csv", "--out", "loop"), "Too many levels"),
    (("bench", "proxies", "--table", "table.csv", "--out", LONG), "File name too long"),
    (
        ("proxies", "--batch-size", "1000000000", "--address", "127.0.0.1:9", "--out", "new.parquet"),
        "expected a batch of 1 to 1,078 images",
    ),
    (("bench", "info", "pipe"), "expected a file, got a folder or a device"),
    (("bench", "info", "loop"), "Too many levels"),
    (("bench", "info", "semicolons.csv"), "commas between the columns"),
    (("bench", "info", "twice.csv"), "'snip' more than once"),
    ((*SEARCH, "--pool", "twice.csv"), "'snip' more than once"),
    (("bench", "random:population=5", *TABLE, "--out", "bench"), "random has no option 'population' in a bench"),
    (("bench", "import", "table.csv", "--proxies", "val_accuracy", "--out", "new.parquet"), "one role per column"),
    (
        ("bench", "import", "table.csv", "--proxies", "snip", "--costs", "snip", "--out", "new.parquet"),
        "one role per column",
    ),
    (("bench", "random", *TABLE, "--seeds", "100000000000000000000", "--out", "bench"), "expected 1 to 1,000,000"),
    ((*SEARCH, "--space", "table:pipe"), "expected a file, got a folder or a device"),
    ((*SEARCH, "--data", "calls.py:leaves"), "'calls.py:leaves' failed when archray called it: SystemExit: 3 ("),
    ((*SEARCH, "--data", "calls.py:fails"), "KeyError: 'absent' ("),
    ((*MAPS, "--dimension", "500000", "--set", "solve.memory_gib=0.001"), "raise memory_gib"),
]
HEAVY_CASES += [
    ((*SEARCH, *options, *dry), message)
    for dry in ((), ("--dry-run",))
    for options, message in [
        (("--constraint", "flops <= -5"), "found no architecture of nasbench201 that meets flops <= -5"),
        (
            ("--data", "arrays:tiny.npz"),
            "at least proxies.batch_size (16) training images, which score an architecture",
        ),
        (("--weights", "taken/file"), "expected no weights, as the space nasbench201 is not read from a model"),
    ]
]
CASES = LIGHT + HEAVY_CASES
CALLS = """from archray.trainables.spaces import Decision, Space

def leaves(settings):
    raise SystemExit(3)

def fails(settings):
    return {}["absent"]

class Leaves(Space):
    name, decisions = "leaves", (Decision("layer", ("wide", "narrow")),)

    def __init__(self):
        raise SystemExit

class Fails(Space):
    name, decisions = "fails", (Decision("layer", ("wide", "narrow")),)

    def __init__(self):
        # The line of this call is named.
        open("/absent/file")
"""
SPACE = """from archray.trainables.spaces import Decision, Space

class Own(Space):
    name, decisions = "own", (Decision("layer", ("wide", "narrow")),)

    def build(self, architecture, *, in_channels, num_classes):
        raise NotImplementedError

class Unbuilt(Space):
    name, decisions = "unbuilt", Own.decisions

class Ambiguous(Space):
    name, decisions = "ambiguous", (Decision("a=b", ("wide", "narrow")),)
"""
MANIFEST = {
    "config": {"method": "random", "space": "darts", "data": {"name": "digits"}, "seed": 0, "repeats": 1},
    "versions": {},
    "created": "2026-01-01T00:00:00+00:00",
    "command": None,
    "references": {},
    "arrays": False,
    "amended": [],
    "data_checksum": None,
}
# Each takes a second or more, all together ten seconds
HEAVY = {"torch", "ray", "sklearn", "scipy", "pandas", "pyarrow", "matplotlib"}


def run_all_cases() -> None:
    """Runs every case in one new process and prints each outcome as JSON."""
    from archray.platform.cli import main

    results = []
    for arguments, _ in CASES:
        sys.argv = ["archray", *arguments]
        errors, code = io.StringIO(), None
        with contextlib.redirect_stderr(errors), contextlib.redirect_stdout(io.StringIO()):
            try:
                main()
            except SystemExit as stop:
                code = stop.code
        left = sorted(str(path) for path in Path().rglob("*"))
        results.append(
            {"code": code, "error": errors.getvalue(), "loaded": sorted(HEAVY & set(sys.modules)), "files": left}
        )
    print(json.dumps(results))


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory):
    folder = tmp_path_factory.mktemp("bad_input")
    for name in ("empty", "taken", "finished", "run-of-another"):
        (folder / name).mkdir()
    (folder / "taken" / "file").write_text("kept")
    (folder / "finished" / "manifest.json").write_text("{}")
    (folder / "metric.py").write_text("def metric(network):\n    return 1.0\n\n\nkappa = metric\n")
    (folder / "space.py").write_text(SPACE)
    (folder / "numbers.yaml").write_text("train: {1: 2}")
    (folder / "space.yaml").write_text("space: 3")
    (folder / "broken.py").write_text("import sys\nsys.absent\n")
    (folder / "run-of-another" / "manifest.json").write_text(json.dumps(MANIFEST))
    (folder / "null.json").write_text("null")
    (folder / "twice.json").write_text('{"seed": 1, "seed": 2}')
    (folder / "twice.yaml").write_text("train: {lr: 1, lr: 2}")
    (folder / "leaves.py").write_text("import sys\nsys.exit('bye')\n")
    (folder / "calls.py").write_text(CALLS)
    (folder / "loop").symlink_to("loop")
    os.mkfifo(folder / "pipe")
    (folder / "table.csv").write_text("architecture,val_accuracy,snip\na,0.5,1\nb,0.6,2\nc,0.7,3\n")
    np.savez(folder / "tiny.npz", x_train=np.random.default_rng(0).random((20, 8, 8)), y_train=np.arange(20) % 2)
    (folder / "semicolons.csv").write_text("architecture;val_accuracy\na;0.5\nb;0.6\n")
    (folder / "twice.csv").write_text("architecture,val_accuracy,snip,snip\na,0.5,1,2\nb,0.6,2,3\n")
    (folder / "misspelled.toml").write_text("[train]\nepoch = 3\n")
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
def test_bad_input_prints_one_paragraph_and_exits_with_code_2(outcomes, case):
    before, results = outcomes
    outcome, expected_message = results[case], CASES[case][1]
    assert outcome["code"] == 2, outcome["error"]
    assert expected_message in outcome["error"]
    # The option does not exist in the command, so the error has its box
    by_typer = outcome["error"].startswith("Usage:")
    assert "Traceback" not in outcome["error"]
    assert by_typer or len(outcome["error"].strip().splitlines()) == 1
    if case < len(LIGHT):
        assert outcome["loaded"] == [], "an early error takes less than a second"
    assert outcome["files"] == before, "nothing was written, nothing was lost"


LIST = "archray list proxies"


@pytest.mark.parametrize(
    ("script", "code", "error"),
    [
        (f"{LIST} > /dev/full", 1, "cannot write the output: No space left on device"),
        (f"PYTHONIOENCODING=ascii {LIST}", 0, ""),
        (f"{LIST} | true; exit ${{PIPESTATUS[0]}}", 1, ""),
        (f"mkdir gone && cd gone && rmdir ../gone && {LIST}", 2, "current folder was deleted"),
    ],
)
def test_an_unsuitable_environment_raises_an_error(tmp_path, script, code, error):
    archray = f'archray() {{ {shlex.quote(sys.executable)} -m archray.platform.cli "$@"; }}\n'
    run = subprocess.run(
        ["bash", "-c", archray + script],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])},
    )
    assert (run.returncode, error in run.stderr) == (code, True), run.stderr
    assert len(run.stderr.splitlines()) == bool(error)


@pytest.mark.parametrize(
    ("function", "arguments"),
    [
        *(("search", {"method": value}) for value in (None, 5, ["random"])),
        *(("search", {"out": "run", "data": value}) for value in (5, True, ("a", "b"))),
        *(("search", {"out": "run", name: 5}) for name in ("space", "preset", "config", "callbacks", "run_config")),
        ("search", {"out": "run", "callbacks": ["x"]}),
        *(("search", {"out": value}) for value in (5, b"run", ["run"], "")),
        ("search", {"out": "run", "time_budget_s": True}),
        *(
            (name, {"path": value})
            for name in ("load", "show", "resume", "report", "export")
            for value in (None, 5, [])
        ),
        ("export", {"path": "run", "formats": 5}),
        *(("watch", {"path": "run", "interval": value}) for value in ("x", -1, math.nan)),
        ("runs", {"folder": None}),
        ("compare", {"paths": None}),
        ("list_names", {"kind": []}),
        ("config", {"method": []}),
        ("proxies", {"space": None}),
        ("proxies", {"settings": 5}),
        ("proxies", {"seed": -1}),
        *(("bench", {"methods": value}) for value in (None, 5, [None])),
        *(("bench", {name: None}) for name in ("table", "out", "seeds", "proxy", "against")),
        *(("bench", {"seeds": value}) for value in (10**20, 1.5, True, "x", [1])),
        *(("bench", {"budget": value}) for value in (10**20, 1.5, True, "x", [True], {})),
        *(("bench", {name: 5}) for name in ("where", "objective", "result", "cluster")),
    ],
    ids=str,
)
def test_arguments_of_wrong_types_raise_an_error(tmp_path, monkeypatch, function, arguments):
    monkeypatch.chdir(tmp_path)
    Path("table.csv").write_text("architecture,val_accuracy,snip\na,0.5,1\nb,0.6,2\n")
    keywords = {"methods": ["random"], "table": "table.csv", "out": "bench", "budget": 1} if function == "bench" else {}
    with pytest.raises(InvalidInput):
        getattr(archray, function)(**keywords | arguments)
    assert os.listdir() == ["table.csv"]
