"""Operations: the operator's commands on a store, beside a running server or without a server."""
