"""Tables of trained architectures, as oracles: results of a search without training."""

from archray.trainables.tabular.table import OBJECTIVE, Table, TableOracle, open_table, read_table
from archray.trainables.tabular.table_file import Roles

__all__ = ["OBJECTIVE", "Roles", "Table", "TableOracle", "open_table", "read_table"]
