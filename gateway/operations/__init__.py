"""Operations: the commands of an operator on a store, beside a running server or without one."""
