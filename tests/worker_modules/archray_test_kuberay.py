"""The schema of KubeRay: the fields of ray.io/v1 in KubeRay 1.6, and the pod fields that the manifests here use.

Based on raycluster_types.go and rayjob_types.go. The whole schema is a megabyte, most of it for the pod.
"""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints

QUANTITY = re.compile(r"[0-9]+(\.[0-9]+)?(m|[kMGTPE]i?)?")
NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")


def _name(text: str) -> str:
    if not NAME.fullmatch(text):
        raise ValueError(f"{text!r} is no name of Kubernetes: small letters, digits and hyphens, 63 at most")
    return text


def _quantities(values: dict[str, str]) -> dict[str, str]:
    wrong = {key: value for key, value in values.items() if not QUANTITY.fullmatch(value)}
    if wrong:
        raise ValueError(f"no quantities of Kubernetes: {wrong}")
    return values


Name = Annotated[str, AfterValidator(_name)]
Amounts = Annotated[dict[str, str], AfterValidator(_quantities)]  # a YAML number is not a string and is rejected
Text = Annotated[str, StringConstraints(min_length=1)]
Count = Annotated[int, Field(ge=0)]


class Strict(BaseModel):
    """Rejects a misspelled field; the API server would drop it silently."""

    model_config = ConfigDict(extra="forbid", strict=True)


class Metadata(Strict):
    name: Name
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}


class Variable(Strict):
    name: Text
    value: str | None = None
    valueFrom: dict[str, Any] | None = None


class Resources(Strict):
    requests: Amounts = {}
    limits: Amounts = {}


class Mount(Strict):
    name: Name
    mountPath: Annotated[str, StringConstraints(pattern="^/")]
    readOnly: bool = False
    subPath: str = ""


class Container(Strict):
    name: Name
    image: Text
    env: list[Variable] = []
    resources: Resources
    volumeMounts: list[Mount] = []


class Claim(Strict):
    claimName: Name
    readOnly: bool = False


class Volume(Strict):
    name: Name
    persistentVolumeClaim: Claim | None = None
    emptyDir: dict[str, str] | None = None


class Toleration(Strict):
    key: Text
    operator: Literal["Exists", "Equal"] = "Equal"
    value: str = ""
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"]


class PodSecurity(Strict):
    runAsUser: Count | None = None
    runAsGroup: Count | None = None
    fsGroup: Count | None = None
    fsGroupChangePolicy: Literal["Always", "OnRootMismatch"] = "Always"


class Pod(Strict):
    containers: Annotated[list[Container], Field(min_length=1)]
    volumes: list[Volume] = []
    tolerations: list[Toleration] = []
    nodeSelector: dict[str, str] = {}
    restartPolicy: Literal["Always", "OnFailure", "Never"] = "Always"
    securityContext: PodSecurity | None = None


class PodTemplate(Strict):
    metadata: dict[str, Any] = {}
    spec: Pod


class HeadGroup(Strict):
    rayStartParams: dict[str, str]
    template: PodTemplate
    serviceType: str = ""
    headService: dict[str, Any] | None = None
    enableIngress: bool | None = None


class WorkerGroup(Strict):
    groupName: Name
    replicas: Count = 0
    minReplicas: Count
    maxReplicas: Count
    idleTimeoutSeconds: Count | None = None
    numOfHosts: Count = 1
    rayStartParams: dict[str, str]
    template: PodTemplate
    suspend: bool | None = None


class AutoscalerOptions(Strict):
    version: Literal["v1", "v2"] | None = None
    idleTimeoutSeconds: Count = 60
    upscalingMode: Literal["Default", "Aggressive", "Conservative"] = "Default"
    resources: Resources | None = None
    image: Text | None = None
    env: list[Variable] = []


class AuthOptions(Strict):
    mode: Literal["token", "disabled"] = "token"
    secretName: Name | None = None
    enableK8sTokenAuth: bool | None = None


class ClusterSpec(Strict):
    rayVersion: Text
    authOptions: AuthOptions | None = None
    enableInTreeAutoscaling: bool = False
    autoscalerOptions: AutoscalerOptions | None = None
    headGroupSpec: HeadGroup
    workerGroupSpecs: list[WorkerGroup] = []
    headServiceAnnotations: dict[str, str] = {}
    gcsFaultToleranceOptions: dict[str, Any] | None = None
    upgradeStrategy: dict[str, Any] | None = None
    suspend: bool | None = None
    managedBy: str | None = None


class JobSpec(Strict):
    entrypoint: Text
    rayClusterSpec: ClusterSpec
    backoffLimit: Count = 0
    activeDeadlineSeconds: Annotated[int, Field(ge=1)] | None = None
    shutdownAfterJobFinishes: bool = False
    ttlSecondsAfterFinished: Count = 0
    submissionMode: Literal["K8sJobMode", "HTTPMode", "InteractiveMode", "SidecarMode"] = "K8sJobMode"
    submitterConfig: dict[str, Any] | None = None
    submitterPodTemplate: PodTemplate | None = None
    runtimeEnvYAML: str = ""
    entrypointNumCpus: float = 0
    entrypointNumGpus: float = 0
    entrypointResources: str = ""
    jobId: str = ""
    metadata: dict[str, str] = {}
    clusterSelector: dict[str, str] = {}
    deletionStrategy: dict[str, Any] | None = None
    suspend: bool = False
    managedBy: str | None = None


class RayCluster(Strict):
    apiVersion: Literal["ray.io/v1"]
    kind: Literal["RayCluster"]
    metadata: Metadata
    spec: ClusterSpec


class RayJob(Strict):
    apiVersion: Literal["ray.io/v1"]
    kind: Literal["RayJob"]
    metadata: Metadata
    spec: JobSpec


KINDS: dict[str, type[RayCluster] | type[RayJob]] = {"RayCluster": RayCluster, "RayJob": RayJob}
