"""The servers that are measured: each is a module that serves one platform's webhook on one port until it is killed."""
