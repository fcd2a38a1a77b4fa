"""Ready-made tools, all read-only."""

from gateway.toolbox.arithmetic import calculator
from gateway.toolbox.files import file_search
from gateway.toolbox.now import current_time
from gateway.toolbox.web import http_get

__all__ = ["calculator", "current_time", "file_search", "http_get"]
