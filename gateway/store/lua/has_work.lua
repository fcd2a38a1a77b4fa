-- ARGV: conversation
-- Returns 1 if a waking event without a pointer, or a part, waits there.
local conversation = argument()
return (has_work('turn', conversation) or has_work('out', conversation)) and 1 or 0
