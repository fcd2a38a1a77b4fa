"""The measured servers. Each module serves one platform's webhook on one port until it is killed."""
