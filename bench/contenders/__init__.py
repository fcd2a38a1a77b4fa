"""The measured servers. Each module serves a platform's webhook on a port until killed."""
