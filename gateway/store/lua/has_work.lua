-- ARGV: conversation
-- Returns 1 if an event that wakes and has no pointer waits in it, or a part.
local conversation = argument()
return (has_work('turn', conversation) or has_work('out', conversation)) and 1 or 0
