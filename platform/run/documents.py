"""Schemas of a run's JSON files. `Folder.read_json` validates with them, since a run may be damaged or untrusted."""

from datetime import datetime
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, Field, model_validator

from archray.platform.quantities import QUANTITIES
from archray.settings import LARGEST

Number = Annotated[float, Field(allow_inf_nan=False)]
Count = Annotated[int, Field(ge=0, le=LARGEST)]
Seconds = Annotated[float, Field(ge=0, le=LARGEST)]
ProcessNumber = Annotated[int, Field(ge=1, lt=2**31)]


def _with_zone(text: str) -> str:
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None or not 2000 <= moment.year < 3000:
        raise ValueError(f"expected a time after 2000 with a time zone, got {text[:40]}")
    return text


Moment = Annotated[str, AfterValidator(_with_zone)]  # ISO 8601


def _measures(document: dict[str, Any]) -> dict[str, Any]:
    for key in QUANTITIES.keys() & document.keys():
        for name, kinds in ((key, (int, float)), (f"{key}_std", (int, float)), (f"{key}_n", (int,))):
            value = document.get(name)
            if value is not None and (isinstance(value, bool) or not isinstance(value, kinds) or abs(value) > 1e300):
                raise ValueError(f"expected a number as {name}, got {type(value).__name__}")
    return document


class Result(BaseModel):
    """Schema of `architecture.json`, `findings.json`, and the `result` in `summary.json`."""

    architecture: str | None = None
    found: str | None = None
    origin: str | None = None
    members: list[str] = []
    findings: list[str] = []
    headline: str | None = None
    metric: str | None = None
    value: float | None = None

    @model_validator(mode="before")
    @classmethod
    def _measured(cls, document: Any) -> Any:
        return _measures(document) if isinstance(document, dict) else document


class Done(BaseModel):
    """Schema of a stage's `done.json`."""

    inputs: str
    outputs: dict[str, str]
    finished: Moment
    seconds: Seconds
    of_run: dict[str, str] = {}


class Data(BaseModel):
    """Schema of the data in a configuration."""

    name: str
    limit: Annotated[int, Field(ge=1, le=LARGEST)] | None = None


class Config(BaseModel):
    """Schema of the part of a configuration that a summary needs; the class of the method validates the rest."""

    method: str
    space: str
    data: Data
    seed: int
    repeats: Annotated[int, Field(ge=1, le=LARGEST)]


class Reference(BaseModel):
    """Schema of a reference to a user's file that the run has copied, with modules of the file's folder."""

    reference: str
    file: str
    attribute: str
    sha256: str
    modules: dict[str, str] = {}


class Manifest(BaseModel):
    """`manifest.json`."""

    config: Config
    versions: dict[str, str]
    created: Moment
    command: str | None
    references: dict[str, Reference]
    arrays: bool
    amended: list[dict[str, Any]]
    data_checksum: str | None


class Beat(BaseModel):
    """`heartbeat.json`."""

    at: Moment
    since: Moment = "2000-01-01T00:00:00+00:00"
    host: str
    processes: str
    pid: ProcessNumber
    started: str | None = None
    work: str = ""
    token: str = ""


class Scoring(BaseModel):
    """`scoring.json`."""

    started: Number
    done: Count
    total: Count
    rate: Number | None
    failed: Count


class Line(BaseModel):
    """Schema of a result in a Tune run's log."""

    architecture: str | None = None
    epoch: Number = 0
    training_iteration: Number = 0
    epochs: Number | None = None
    timestamp: Number | None = None
