"""Training-free metrics of networks. Shu 2022, sec. 7.2.2; notes P1 to P5."""

from archray.trainables.proxies.pool_scorer import PoolScorer
from archray.trainables.proxies.proxy import PROXIES, Proxy, Score
from archray.trainables.proxies.scoring import score
from archray.trainables.proxies.settings import ProxySettings

__all__ = ["PROXIES", "PoolScorer", "Proxy", "ProxySettings", "Score", "score"]
