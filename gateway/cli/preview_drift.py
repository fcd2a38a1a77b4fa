"""Drift check of previews: a preview is made twice, as before the prompt and again before the launch."""

from __future__ import annotations

from collections.abc import Mapping

from channels import Json
from gateway.tools import Preview, Tool, ToolContext
from gateway.tools.confirm import LAUNCH_PREVIEW_SECONDS, changed


async def previewed_twice(tool: Tool, args: Mapping[str, Json], context: ToolContext) -> tuple[Preview, str]:
    """Return the preview of a call, and a warning when a second preview differs. No warning for a volatile tool.

    Raises the errors of `Tool.preview`.
    """
    preview = await tool.preview(args, context, timeout_seconds=LAUNCH_PREVIEW_SECONDS)
    if tool.volatile:
        return preview, ""
    differs = changed(preview, await tool.preview(args, context, timeout_seconds=LAUNCH_PREVIEW_SECONDS))
    if not differs:
        return preview, ""
    mend = (
        "leave out of precondition= what changes by itself"
        if differs == ["precondition"]
        else "return a Preview with precondition=, which alone is then compared"
    )
    return preview, (
        f"two previews of {tool.name} differ in their {' and '.join(differs)}, so a confirmed call would not run: "
        f"{mend}, or write Confirm(..., volatile=True)"
    )
