"""The version of all word files, which is stored with each action: written by `make words`."""

VERSION = "b5b74bcc"
