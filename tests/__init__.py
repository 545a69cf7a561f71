"""Claims. `checked` is their run-time type checker: an int is accepted where a float is, as type checkers do."""

from beartype import BeartypeConf, beartype

checked = beartype(conf=BeartypeConf(is_pep484_tower=True))
