"""Tables of trained architectures, as oracles: what a search would have found, without training anything."""

from archray.trainables.tabular.oracle import OBJECTIVE, TableOracle
from archray.trainables.tabular.roles import Roles
from archray.trainables.tabular.table import Table, open_table, read_table

__all__ = ["OBJECTIVE", "Roles", "Table", "TableOracle", "open_table", "read_table"]
